"""Which headers are the author's own, and so part of the cache key."""

from __future__ import annotations

from pathlib import Path

from opsmith.toolchain import included_files


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_headers_are_followed_into_the_headers_they_include(tmp_path: Path) -> None:
    write(tmp_path / "a.h", '#include "detail/b.h"\n')
    write(tmp_path / "detail/b.h", '#include "c.h"\n')  # beside b.h, not beside the source
    write(tmp_path / "detail/c.h", "int c;\n")
    found = included_files('#include "a.h"\n', tmp_path)
    assert found == {
        "<0>/a.h": b'#include "detail/b.h"\n',
        "<0>/detail/b.h": b'#include "c.h"\n',
        "<0>/detail/c.h": b"int c;\n",
    }


def test_headers_that_include_each_other_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "a.h", '#include "b.h"')
    write(tmp_path / "b.h", '#include "a.h"')
    assert set(included_files('#include "a.h"', tmp_path)) == {"<0>/a.h", "<0>/b.h"}


def test_a_folder_linked_into_itself_ends(tmp_path: Path) -> None:
    write(tmp_path / "a.h", '#include "again/a.h"')
    (tmp_path / "again").symlink_to(tmp_path)
    assert list(included_files('#include "a.h"', tmp_path)) == ["<0>/a.h"]


def test_headers_of_the_system_and_of_torch_are_left_out(tmp_path: Path) -> None:
    source = '#include <vector>\n#include "torch/csrc/stable/library.h"\n#include <cuda_fp16.h>\n'
    assert included_files(source, tmp_path) == {}


def test_quotes_look_beside_the_source_and_both_forms_in_the_include_directories(tmp_path: Path) -> None:
    write(tmp_path / "src/quoted.h", "1")
    write(tmp_path / "include/mylib/angle.h", "2")
    write(tmp_path / "include/plain.h", "3")
    source = '#include "quoted.h"\n#  include <mylib/angle.h>\n#include "plain.h"\n'
    found = included_files(source, tmp_path / "src", [tmp_path / "include"])
    assert found == {"<0>/quoted.h": b"1", "<1>/mylib/angle.h": b"2", "<1>/plain.h": b"3"}


def test_names_do_not_tell_where_the_tree_lies(tmp_path: Path) -> None:
    found = []
    for home in ("one", "two/deeper"):
        write(tmp_path / home / "include/common.h", '#include "../shared/up.h"')
        write(tmp_path / home / "shared/up.h", "up")
        found.append(included_files("#include <common.h>", tmp_path / home / "src", [tmp_path / home / "include"]))
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_header_that_comes_to_shadow_another_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "second/a.h", "second")
    directories = [tmp_path / "first", tmp_path / "second"]
    before = included_files("#include <a.h>", None, directories)
    write(tmp_path / "first/a.h", "first")
    assert included_files("#include <a.h>", None, directories) != before


def test_what_has_include_asks_for_counts_too(tmp_path: Path) -> None:
    write(tmp_path / "option.h", "1")
    assert set(included_files('#if __has_include("option.h")\n#endif\n', tmp_path)) == {"<0>/option.h"}


def test_includes_in_comments_do_no_harm(tmp_path: Path) -> None:
    write(tmp_path / "old.h", "1")
    assert set(included_files('// #include "old.h"\n/* #include "gone.h" */\n', tmp_path)) == {"<0>/old.h"}
