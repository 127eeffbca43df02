"""`opsmith build`: the kernels of a package compiled ahead of time, so that its users need no compiler."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..errors import NothingToBuildError, WheelError
from ..errors.base import plural
from ._ops import explaining
from ._options import Json, option
from ._screen import FAILED, RefusedError, output, prepare_json, print_note, progress_bar, size, tilde, write_json

if TYPE_CHECKING:
    from ..operator.op import Op
    from ..shipping.audit import Verdict
    from ..shipping.building import Plan, Row
    from ..shipping.library import Contents


def command(
    package: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE",
            show_default=False,
            help="Its name. Default: the current project's package.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        option(
            metavar="sm_80,sm_90|all",
            help="GPUs; +PTX adds code for later ones. Default: GPU_TARGETS, or all.",
        ),
    ] = None,
    no_cuda: Annotated[bool, typer.Option("--no-cuda", help="Build for CPUs only, as USE_CUDA=0 does.")] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Build extensions for a debugger, to be used with DEBUG=1."),
    ] = False,
    into: Annotated[
        Path | None,
        option(metavar="DIR", help="Write the result here. Default: PACKAGE/prebuilt; dist/ for a wheel or a library."),
    ] = None,
    wheel: Annotated[
        bool, typer.Option("--wheel", help="Make the project's wheel, with the prebuilt files in it.")
    ] = False,
    library: Annotated[
        bool,
        typer.Option("--library", help="Make one shared library of the operators, for torch.ops.load_library and C++."),
    ] = False,
    hf_kernel: Annotated[
        Path | None,
        option(
            "--hf-kernel", metavar="DIR", help="Write a kernel for the Hugging Face Hub into DIR, and nothing else."
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Build a second time from scratch, and compare.")] = False,
    passport: Annotated[
        list[Path] | None,
        option(metavar="FILE", help="Results of `check --json` or `bench --json`, for users to see in `show`."),
    ] = None,
    json: Json = None,
) -> None:
    """Compile the kernels that the samples of a package's ops reach, for users without a compiler."""
    from ..shipping.project import imported, ops_of, targets_for
    from ..shipping.staging import require_writable
    from ..toolchain.settings import switch

    prepare_json(json)
    if debug:
        os.environ["DEBUG"] = "1"
    switch("DEBUG")  # an invalid value is refused before the build, not by an extension in it
    if arch and no_cuda:
        raise RefusedError("--no-cuda builds for CPUs only: leave out --arch, or --no-cuda.")
    if hf_kernel is not None and (wheel or library or into is not None):
        raise RefusedError("--hf-kernel writes into DIR and nothing else: leave out --wheel, --library and --into.")
    if library and (wheel or passport):
        raise RefusedError("--library writes a library and nothing else: leave out --wheel and --passport.")
    targets = targets_for(arch, no_cuda)
    if place := hf_kernel or into:
        require_writable(place)
    with explaining(package or "the package of this project"):
        module = imported(package)
        ops = ops_of(module, print_note)
    from ..shipping.building import plan
    from ..shipping.passport import passport as read_passport

    if library:
        _build_library(module, ops, targets, into, verify, json)
        return
    proof = read_passport(passport, [op.name for op in ops]) if passport else None
    if hf_kernel is not None:
        variants = _build_for_hub(module, ops, targets, proof, hf_kernel, json)
        if verify:
            _verify(module.__name__, targets, hf_kernel, passport or (), variants, "--hf-kernel")
        return
    planned = plan(module, ops, targets)
    if not planned.count:
        notes = [note for each in planned.recordings for note in each.notes]
        nothing = NothingToBuildError(planned.package, notes if ops else ["it declares no op"])
        if not (wheel and ops):
            raise nothing
        print_note(f"{nothing}\nThe wheel is for every platform.")
    if not wheel:
        _build(planned, into or planned.directory / "prebuilt", True, proof, verify, json)
        return
    from ..shipping.wheel import make_wheel, project_of

    project = project_of(planned.directory)
    with tempfile.TemporaryDirectory(prefix="opsmith-build-") as scratch:
        prebuilt = Path(scratch, "prebuilt")
        _build(planned, prebuilt, False, proof, False, json)
        with output.status("Making the wheel"):
            made = make_wheel(project, planned.package, prebuilt, into or project / "dist")
    output.print(f"\n{tilde(made)}, {size(made.stat().st_size)}", soft_wrap=True)
    if verify:
        _verify(planned.package, targets, made.parent, passport or (), [made.name], "--wheel", "--into")


def _build_library(
    module: ModuleType, ops: Sequence[Op], targets: Sequence[str], into: Path | None, verify: bool, json: Path | None
) -> None:
    from ..shipping.library import collect
    from ..shipping.wheel import project_of
    from . import _build_library as library

    name = module.__name__
    try:
        place = into or project_of(Path(next(iter(module.__path__)))) / "dist"
    except WheelError as error:
        message = f"{name} is in no project, whose dist/ would take the library. Name a directory:  --into DIR"
        raise RefusedError(message) from error
    contents = collect(ops, targets)
    made = library.build(name, contents, targets)
    path = library.placed(made.path, place)
    library.show(path, contents, made)
    verdicts = _audit(path)
    write_json(
        json,
        {
            "package": name,
            "targets": targets,
            "library": str(path),
            "operators": contents.served,
            "notes": contents.notes,
            "libraries": [vars(verdict) for verdict in verdicts],
        },
    )
    if verify:
        library.verify(path, name, targets)


def _build(
    planned: Plan, directory: Path, stays: bool, passport: Mapping[str, Any] | None, verify: bool, json: Path | None
) -> None:
    rows = _built(planned, directory, passport)
    if rows:
        _show(rows, directory if stays else None)
    for recording in planned.recordings:
        for note in recording.notes:
            print_note(f"{recording.op}: {note}")
    verdicts = _audit(directory)
    write_json(
        json,
        {
            "package": planned.package,
            "targets": planned.targets,
            "kernels": [vars(row) for row in rows],
            "libraries": [vars(verdict) for verdict in verdicts],
        },
    )
    if verify:
        _verify(planned.package, planned.targets, directory, (), (), "--into")


def _build_for_hub(
    module: ModuleType,
    ops: Sequence[Op],
    targets: Sequence[str],
    passport: Mapping[str, Any] | None,
    directory: Path,
    json: Path | None,
) -> list[str]:
    """A variant for CPUs, and one for CUDA if there are targets. Returns their names."""
    from ..shipping.hub import write_hub
    from ..shipping.library import collect
    from ..toolchain import find_nvrtc
    from ._build_library import build

    name = module.__name__
    variants: list[dict[str, str]] = []
    for backend in ["cpu", *([f"cu{find_nvrtc().major}0"] if targets else [])]:
        chosen = targets if backend != "cpu" else ()
        contents = collect(ops, chosen)
        served = {key.partition("::")[2]: has_kernels for key, has_kernels in contents.served.items()}

        def library(namespace: str, contents: Contents = contents, chosen: Sequence[str] = chosen) -> Path:
            return build(name, contents, chosen, namespace).path

        own = library if any(served.values()) else None
        made = write_hub(directory, module, ops, own, passport, served=served, backend=backend, targets=chosen)
        variants.append({"backend": backend, "directory": str(made.directory), "namespace": made.namespace})
        output.print(f"[green]✓[/] {tilde(made.directory)}", soft_wrap=True)
        for note in (*made.notes, *contents.notes):
            print_note(f"{backend}: {note}")
    write_json(json, {"package": module.__name__, "targets": targets, "variants": variants})
    return [Path(each["directory"]).name for each in variants]


def _built(planned: Plan, into: Path, passport: Mapping[str, Any] | None) -> list[Row]:
    from ..shipping.building import build

    with progress_bar() as progress:
        task = progress.add_task(f"Building {planned.package}", total=planned.count)
        return build(planned, lambda: progress.advance(task), into, passport)


def _show(rows: Sequence[Row], directory: Path | None) -> None:
    """One line per op, for all targets together. `directory`: where the files are, if they stay there."""
    from ..shipping.passport import place_name

    kinds = {place: _kind(place) for place in sorted({row.place for row in rows})}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("op", overflow="fold")
    shown = [kind for kind in _KINDS if kind in kinds.values()]
    for title in (*shown, "size"):
        table.add_column(title, justify="right", no_wrap=True)
    for op in dict.fromkeys(row.op for row in rows):
        own = [row for row in rows if row.op == op]
        counts = Counter(kinds[row.place] for row in own)
        bytes = sum({row.key: row.bytes for row in own}.values())
        table.add_row(op, *(str(counts[kind] or "") for kind in shown), size(bytes))
    output.print(table)
    every = {row.key: row.bytes for row in rows}
    places = ", ".join(dict.fromkeys(place_name(place) for kind in _KINDS for place in kinds if kinds[place] == kind))
    where = f", in {tilde(directory)}" if directory else ""
    output.print(f"\n{plural(len(every), 'build')} for {places}; {size(sum(every.values()))}{where}", soft_wrap=True)


_KINDS = ("processors", "GPUs", "libraries")


def _kind(place: str) -> str:
    from ..generate.emit_cpp import CAPABILITIES

    return _KINDS[0] if place in CAPABILITIES else _KINDS[1] if place.startswith(("sm_", "compute_")) else _KINDS[2]


def _audit(directory: Path) -> Sequence[Verdict]:
    """Audits the libraries in a directory, or one library, and prints the verdicts."""
    from ..shipping.audit import audited, tools_missing
    from ..toolchain import manylinux

    verdicts = audited(directory)
    for verdict in verdicts:
        output.print(f"{'[yellow]![/]' if verdict.problems else '[green]✓[/]'} {verdict}", soft_wrap=True)
        for problem in verdict.problems:
            output.print(f"  {problem}", soft_wrap=True)
    if verdicts and (obstacle := manylinux.obstacle()):
        print_note(f"the libraries need a system at least as new as this one, because {obstacle}")
    if verdicts and (missing := tools_missing()):
        print_note(f"not audited with {' and '.join(missing)}, which are not installed: pip install 'opsmith[build]'")
    return verdicts


def _verify(
    package: str,
    targets: Sequence[str],
    directory: Path,
    passport: Sequence[Path],
    written: Sequence[str],
    *options: str,
) -> None:
    """Builds again and compares every file. `written`: the wheel or the directories that this build has written, where
    others may be beside them. The last of `options` takes the directory."""
    from ._build_library import built_again

    proof = [argument for path in passport for argument in ("--passport", str(path))]
    with built_again(package, targets, *proof, *options) as again:
        first, second = _contents(directory, written), _contents(again, written)
    if different := sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)):
        listed = "\n".join(f"  {name}" for name in different[:10])
        output.print(f"[red]{len(different)} of {len(first)} files differ in a second build:[/]\n{listed}")
        raise typer.Exit(FAILED)
    output.print(f"[green]✓[/] built a second time: {len(first)} files, all identical")


def _contents(directory: Path, written: Sequence[str]) -> dict[str, bytes]:
    """The built files by name, with those in a wheel; passport.json beside them is not one."""
    found: dict[str, bytes] = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory)
        ours = not written or any(part in written for part in name.parts)
        if ours and path.is_file() and path.name != "passport.json" and "__pycache__" not in name.parts:
            found[str(name)] = path.read_bytes()
            if path.suffix == ".whl":
                with zipfile.ZipFile(path) as wheel:
                    found.update({member: wheel.read(member) for member in wheel.namelist()})
    return found
