"""Import one plugin, check its hooks, and ask it what it offers.

The same steps run in the child that tries an unknown plugin and in the process that uses it.  pluggy and the API are
imported here, at the first plugin that is really loaded, and not before.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jackfield.errors import HookMisuse
from jackfield.plugins.broken import Broken, Phase
from jackfield.plugins.discovery import Found
from jackfield.plugins.files import one_line
from jackfield.plugins.kinds import REGISTRATION_HOOKS, Kind

if TYPE_CHECKING:
    from jackfield.api import ActionHandler, ApprovalKind, DocumentKind, ObjectType, RouteSet
    from jackfield.models.commands import ChatCommand

__all__ = ["LoadedPlugin", "Offers", "Refused", "check_hooks", "import_object", "load", "offers_of"]

Progress = Callable[[Phase], None]
"""Told which phase begins."""


class Refused(Exception):
    """This plugin can't be used; `broken` says why.  Stays inside this room."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken.reason)
        self.broken = broken


@dataclass(slots=True)
class Offers:
    """Everything that one plugin object registers."""

    by_kind: dict[Kind, dict[str, Any]] = field(default_factory=dict)
    """Kind to name to `ChannelType`, `ProviderType`, ..."""
    actions: tuple[ActionHandler, ...] = ()
    routes: tuple[RouteSet, ...] = ()
    document_kinds: tuple[DocumentKind, ...] = ()
    object_types: tuple[ObjectType, ...] = ()
    approvals: tuple[ApprovalKind, ...] = ()
    commands: tuple[ChatCommand, ...] = ()
    notes: tuple[str, ...] = ()
    """What is odd about it, but no failure."""


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A plugin that is loaded: where it was found, its module or object, and what it offers."""

    found: Found
    plugin: object
    offers: Offers

    @property
    def item(self) -> Any:
        """What its entry point names: a `ChannelType`, `ProviderType`, `RuntimeType`, `ToolSet`, ..."""
        return self.offers.by_kind[self.found.kind][self.found.name]


def load(found: Found, progress: Progress = lambda phase: None) -> LoadedPlugin:
    """Import it, check its hooks, call its registration hooks, and compare the names.

    Raises:
        Refused: any of that failed, whatever it raised short of KeyboardInterrupt.
    """
    if found.codeless:
        return _codeless_pack(found)
    plugin = _import_isolated(found, progress)
    progress("hooks")
    notes = _check_isolated(found, plugin)
    progress("register")
    offers = _register_isolated(found, plugin)
    offers.notes = (*notes, *offers.notes)
    _compare_names(found, plugin, offers)
    return LoadedPlugin(found, plugin, offers)


def _codeless_pack(found: Found) -> LoadedPlugin:
    """A directory plugin that is nothing but documents."""
    from jackfield.api import DocumentPack

    title = found.distribution.title or found.name
    pack = DocumentPack(name=found.name, title=title, package="", folder=found.distribution.place)
    return LoadedPlugin(found, pack, Offers(by_kind={Kind.PACK: {found.name: pack}}))


# ---- import


def import_object(found: Found) -> object:
    """The module or object that the entry point names.  Raises whatever importing it raises."""
    module_name, _, attribute = found.value.partition(":")
    if found.distribution.directory:
        folder = found.distribution.place
        if folder not in sys.path:
            sys.path.append(folder)
            importlib.invalidate_caches()
    target: object = importlib.import_module(module_name.strip())
    for part in attribute.strip().split(".") if attribute.strip() else ():
        target = getattr(target, part)
    return target


def _import_isolated(found: Found, progress: Progress) -> object:
    progress("import")
    if not found.value:
        raise Refused(
            Broken(
                phase="import",
                reason=f"the directory plugin {found.name!r} names no code for its {found.kind}",
                fix=f'add [entry_points.{found.kind}] with {found.name} = "module" to its manifest',
            )
        )
    try:
        plugin = import_object(found)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise Refused(explain(found, "import", problem)) from problem
    if isinstance(plugin, type) or (not isinstance(plugin, ModuleType) and callable(plugin)):
        raise Refused(
            Broken(
                phase="import",
                reason=f"{found.value} is a {'class' if isinstance(plugin, type) else type(plugin).__name__}, "
                "not a module or an object with hooks",
                fix=f"let the entry point {found.name} name the module, or an instance",
            )
        )
    return plugin


def explain(found: Found, phase: Phase, problem: BaseException) -> Broken:
    """An exception of a plugin's code as a verdict that names the place and the way out."""
    place = _place(problem, found)
    retry = f"jackfield plugin retry {found.name}"
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        own = {value.partition(":")[0].partition(".")[0].strip() for _, _, value in found.distribution.entries}
        if problem.name.partition(".")[0] in own:
            return Broken(
                phase=phase,
                reason=f"its module {problem.name} is not there{place}",
                fix=f"install {found.distribution.name} again, then: {retry}",
            )
        return Broken(
            phase=phase,
            reason=f"it needs the module {problem.name}, which is not installed{place}",
            fix=f"install what provides {problem.name}, then: {retry}",
        )
    if isinstance(problem, SyntaxError):
        where = f"{problem.filename}:{problem.lineno}" if problem.filename else "its code"
        return Broken(
            phase=phase,
            reason=f"syntax error in {where}: {one_line(problem.msg or '')}",
            fix=f"install another release of {found.distribution.name}, or correct the file",
        )
    if isinstance(problem, SystemExit):
        return Broken(
            phase=phase,
            reason=f"it tried to end the program (SystemExit {one_line(str(problem.code))}){place}",
            fix=f"tell the author of {found.distribution.name}; after a correction: {retry}",
        )
    text = one_line(str(problem))
    return Broken(
        phase=phase,
        reason=f"{type(problem).__name__}{': ' + text if text else ''}{place}",
        fix=f"correct the cause, then: {retry}; or install another release of {found.distribution.name}",
    )


def _place(problem: BaseException, found: Found) -> str:
    """` (file:line)` of the innermost line of the plugin's own code, if there is one."""
    import traceback

    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        if any(frame.filename.startswith(root) for root in found.distribution.roots):
            return f" ({frame.filename}:{frame.lineno})"
    return ""


# ---- hooks


def _check_isolated(found: Found, plugin: object) -> tuple[str, ...]:
    try:
        return check_hooks(plugin, found.distribution.name)
    except HookMisuse as problem:
        raise Refused(
            Broken(phase="hooks", reason=problem.message, fix=problem.fix or "correct the hook in the plugin's code")
        ) from problem
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise Refused(explain(found, "hooks", problem)) from problem


def check_hooks(plugin: object, distribution: str) -> tuple[str, ...]:
    """Compare the marked functions of a plugin with the hooks' specifications; the answer is what is merely odd.

    Raises:
        HookMisuse: a marked function has no hook's name, asks for an argument that its hook hasn't, is async where the
            hook isn't or the other way round, or is a wrapper.
    """
    from jackfield.api.hookspecs import HOOKS, HookKind, HookSpecs

    notes: list[str] = []
    for name, function, options in _marked(plugin):
        hook = options.get("specname") or name
        where = f"{distribution}: {_definition(function)}"
        if hook not in HOOKS:
            near = get_close_matches(hook, HOOKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the hooks are {', '.join(sorted(HOOKS))}"
            raise HookMisuse(
                f"{where} is marked as a hook, but there is no hook {hook!r}",
                fix=hint,
            )
        if options.get("wrapper") or options.get("hookwrapper"):
            raise HookMisuse(f"{where} is a hook wrapper, which is not supported", fix="use @hookimpl without wrapper")
        allowed = [one for one in inspect.signature(getattr(HookSpecs, hook)).parameters if one != "self"]
        _check_arguments(hook, function, allowed, where)
        wants_async = HOOKS[hook] is not HookKind.REGISTRATION
        if inspect.iscoroutinefunction(function) is not wants_async:
            raise HookMisuse(
                f"{where} must be {'an async function' if wants_async else 'an ordinary function, not async'}",
                fix=f"write: {'async ' if wants_async else ''}def {hook}({', '.join(allowed)})",
            )
    marked = {name for name, _, _ in _marked(plugin)}
    for name in HOOKS:
        candidate = inspect.getattr_static(plugin, name, None)
        if name not in marked and inspect.isfunction(candidate):
            notes.append(f"{_definition(candidate)} has a hook's name but no @hookimpl, so it is not called")
    return tuple(notes)


def _check_arguments(hook: str, function: Callable[..., Any], allowed: Sequence[str], where: str) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise HookMisuse(
                f"{where}: hook {hook} can't take *args or **kwargs", fix=f"name them: {', '.join(allowed)}"
            )
        if parameter.name in allowed or parameter.default is not inspect.Parameter.empty:
            continue
        near = get_close_matches(parameter.name, allowed, n=1)
        raise HookMisuse(
            f"{where}: hook {hook} has no argument {parameter.name!r}",
            fix=f"did you mean {near[0]}?" if near else f"its arguments are: {', '.join(allowed) or 'none'}",
        )


def _marked(plugin: object) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Name, function and marker options of each function that carries our marker, without running properties."""
    import pluggy

    from jackfield.api.hookspecs import PROJECT

    manager = pluggy.PluginManager(PROJECT)
    for name in dir(plugin):
        static = inspect.getattr_static(plugin, name, None)
        if name.startswith("__") or isinstance(static, property):
            continue
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is not None:
            yield name, getattr(plugin, name), dict(options)


def _definition(function: Callable[..., Any]) -> str:
    """`name(arguments)` as its author wrote it, with file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return f"{getattr(function, '__name__', function)}{inspect.signature(function)}{place}"


# ---- registration


def _register_isolated(found: Found, plugin: object) -> Offers:
    try:
        return offers_of(plugin)
    except Refused:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise Refused(explain(found, "register", problem)) from problem


def offers_of(plugin: object) -> Offers:
    """Call the registration hooks of one plugin object.

    Raises:
        Refused: a hook returned something else than it must.
        BaseException: whatever a hook raised.
    """
    from jackfield import api
    from jackfield.models.commands import ChatCommand

    hooks = {options.get("specname") or name: function for name, function, options in _marked(plugin)}
    offers = Offers()
    classes: dict[Kind, type[Any]] = {
        Kind.CHANNEL: api.ChannelType,
        Kind.PROVIDER: api.ProviderType,
        Kind.RUNTIME: api.RuntimeType,
        Kind.TOOLS: api.ToolSet,
        Kind.PACK: api.DocumentPack,
        Kind.EXTENSION: api.ExtensionType,
    }
    for kind, hook in REGISTRATION_HOOKS.items():
        if hook in hooks:
            offers.by_kind[kind] = {_name_of(one): one for one in _call(hook, hooks[hook], classes[kind])}
    for attribute, hook, cls in (
        ("actions", "register_actions", api.ActionHandler),
        ("routes", "register_routes", api.RouteSet),
        ("document_kinds", "register_kinds", api.DocumentKind),
        ("object_types", "register_object_types", api.ObjectType),
        ("approvals", "register_approvals", api.ApprovalKind),
        ("commands", "register_commands", ChatCommand),
    ):
        if hook in hooks:
            setattr(offers, attribute, tuple(_call(hook, hooks[hook], cls)))
    return offers


def _call(hook: str, function: Callable[..., Any], cls: type[Any]) -> list[Any]:
    returned = function()
    wrong: object = returned
    if isinstance(returned, (list, tuple)):
        strangers = [one for one in returned if not isinstance(one, cls)]
        if not strangers:
            return list(returned)
        wrong = strangers[0]
        what = f"a sequence with {type(wrong).__name__} in it"
    else:
        what = type(wrong).__name__
    raise Refused(
        Broken(
            phase="register",
            reason=f"{_definition(function)} returned {what}, not a list of {cls.__name__}",
            fix=f"return [{cls.__name__}(...)] from {hook}",
        )
    )


def _name_of(item: Any) -> str:
    """The name that a registered object reports for itself."""
    info = getattr(item, "info", None)
    return str(info.type if info is not None else item.name)


def _compare_names(found: Found, plugin: object, offers: Offers) -> None:
    hook = REGISTRATION_HOOKS[found.kind]
    names = offers.by_kind.get(found.kind)
    if names is None and inspect.isfunction(inspect.getattr_static(plugin, hook, None)):
        raise Refused(
            Broken(
                phase="register",
                reason=f"{hook} of {found.value} is not marked as a hook",
                fix=f"write @hookimpl above def {hook}",
            )
        )
    if names is None:
        raise Refused(
            Broken(
                phase="register",
                reason=f"the entry point {found.name} promises a {found.kind}, but {found.value} has no {hook} hook",
                fix=f"add @hookimpl def {hook}() to {found.value}",
            )
        )
    if found.name not in names:
        reported = ", ".join(map(repr, names)) or "nothing"
        raise Refused(
            Broken(
                phase="register",
                reason=f"the entry point is called {found.name!r}, but {hook} of {found.value} reports {reported}",
                fix="give both the same name",
            )
        )
