"""Reading compilers' output, in the forms of compilers that may not be installed here."""

from __future__ import annotations

from pathlib import Path

from opsmith.toolchain.diagnostics import Diagnostic, parse

AUTHOR = Path("/home/author/mylib")
WORKDIR = Path("/cache/build/0123.abcd")


def errors(log: str) -> list[Diagnostic]:
    return parse(log, [AUTHOR], WORKDIR)


def test_clang_with_a_caret() -> None:
    log = """/home/author/mylib/a.cpp:3:10: error: use of undeclared identifier 'x'
  return x;
         ^
1 error generated.
"""
    assert errors(log) == [
        Diagnostic("/home/author/mylib/a.cpp", 3, 10, "use of undeclared identifier 'x'", "  return x;\n         ^")
    ]


def test_clang_places_an_error_in_a_system_header_at_the_line_that_asked_for_it() -> None:
    log = """/usr/include/c++/12/bits/stl_algo.h:10:5: error: invalid operands to binary expression
    a < b;
      ^
/usr/include/c++/12/bits/stl_algo.h:90:2: note: in instantiation of function template specialization 'g' requested here
/home/author/mylib/a.cpp:7:8: note: in instantiation of function template specialization 'std::sort' requested here
"""
    (error,) = errors(log)
    assert (error.file, error.line) == ("/home/author/mylib/a.cpp", 7)
    assert "(inside /usr/include/c++/12/bits/stl_algo.h:10)" in error.message


def test_nvcc_numbers_its_errors() -> None:
    (error,) = errors('/home/author/mylib/a.cu(12): error #20: identifier "x" is undefined\n')
    assert (error.line, error.message) == (12, 'identifier "x" is undefined')


def test_the_authors_errors_come_before_those_of_others() -> None:
    log = "/opt/lib/b.h:1:1: error: theirs\n/home/author/mylib/a.cpp:2:1: error: own\n"
    assert [error.message for error in errors(log)] == ["own", "theirs"]


def test_warnings_and_notes_are_not_errors_and_lend_no_excerpt() -> None:
    log = """/home/author/mylib/a.cpp:1:1: warning: unused
/home/author/mylib/a.cpp:2:1: error: wrong
/home/author/mylib/a.cpp:3:1: note: see here
    3 | this line is the note's
      | ^
"""
    (error,) = errors(log)
    assert error.message == "wrong"
    assert error.excerpt == ""


def test_an_error_said_twice_is_shown_once() -> None:
    assert len(errors("/home/author/mylib/a.cpp:2:1: error: wrong\n" * 2)) == 1


def test_a_missing_header_is_an_error() -> None:
    (error,) = errors("/home/author/mylib/a.cpp:1:10: fatal error: gone.h: No such file or directory\n")
    assert error.message == "gone.h: No such file or directory"


def test_output_without_errors_gives_none() -> None:
    assert errors("collect2: error: ld returned 1 exit status\n/usr/bin/ld: cannot find -lx\n") == []
