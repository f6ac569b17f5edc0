"""What is installed for an agent group besides what its runtime has, and its MCP servers.

::

    shelf        where builds lie, which of them holds, and what is missing
    indexes      from where packages come
    installing   running a package manager in the group's sandbox
    requests     what may be asked for
    scripts      files of the workspace that a server is made of
    workshop     all of it, as the host's service
"""
