"""Are the contract suites worth anything?  Each must refuse what is deliberately wrong."""
