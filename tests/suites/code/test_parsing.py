"""Functions of source that is not Python, their documentation, and the files that are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites._code.parsing import parse_functions
from suites._code.selection import Function
from suites._code.source import UnreadableError, find_source_files

BODY = "  one(1);\n  two(2);\n  three(3);\n"


def functions(language: str, text: str) -> dict[str, Function]:
    found = [*parse_functions(text.encode(), "src/file", language)]
    assert len({f.id for f in found}) == len(found)
    return {f.name: f for f in found}


def documented(language: str, text: str) -> dict[str, str]:
    return {name: f.docstring for name, f in functions(language, text).items()}


JAVASCRIPT = f"""
/*!
 * Copyright of all of this.
 */
var req = exports = module.exports = {{}};

/**
 * Set the `value` of the field.
 *
 * More of it.
 * @param {{String}} field the name
 * @public
 */

req.header = function header(name) {{
{BODY}  return this.header(name); // header
}};
exports.plain = async (x) => {{
{BODY}}};
/** Give the *two* words back. */
export default function* words() {{
{BODY}}}
// Just a comment of three words.
function bare(x) {{
{BODY}}}
defineGetter(req, 'query',
  function short() {{ return 1 }});
/** Give the query string parsed. */
defineGetter(req, 'query', function query() {{
{BODY}}});
class Shop {{
  /** Never taken at all. */
  constructor() {{
{BODY}  }}
  /** Sum up every item. */
  static async total(items) {{
{BODY}  }}
  #secret = () => {{
{BODY}  }};
}}
(function () {{
  /** Found inside of a wrapper. */
  function inside() {{
{BODY}    function inner() {{
{BODY}    }}
  }}
}})();
var object = {{
  /** One of an object. */
  pair: function () {{
{BODY}  }},
}};
/** Empty as it is. */
function empty() {{
  // one
  // two

  return 1
}}
function test_it() {{
{BODY}}}
"""

JAVA = f"""
package a.b;
/** Not of a function. */
public class Shop<T> {{
  /** Never taken at all. */
  Shop() {{
{BODY}  }}
  /**
   * Converts {{@code json}} to a {{@link Tree tree}} &amp; <b>back</b>.
   *
   * <p>More.
   * @param json the text
   */
  @Override
  public <S> S fromJson(String json) {{
{BODY}    return fromJson(json, "fromJson");
  }}
  /** Converts with a reader. */
  S fromJson(Reader reader) {{
{BODY}  }}
  /** Reads the next one <p>and another. */
  abstract void next();
  /** {{@inheritDoc}} */
  int get() {{
{BODY}  }}
  enum Kind {{ ONE {{
    // No Javadoc of three words.
    void run() {{
{BODY}    }}
  }} }}
}}
"""

GO = f"""
package gin

//go:noinline
// Use attaches a middleware
// to the router.
//
// More of it.
func (engine *Engine[T]) Use(middleware ...Handler) Routes {{
{BODY}}}

// Far away from its function.

func far() {{
{BODY}}}
/* Serve runs the server. */
func Serve() {{
{BODY}}}
func TestServe(t *testing.T) {{
{BODY}}}
func tiny() int {{ return 1 }}
"""

RUST = f"""
//! The documentation of a file.
/// Adds both of them.
///
/// # Examples
#[inline]
pub fn add(a: i32) -> i32 {{
{BODY}}}
impl<'a, T: Clone> fmt::Display for Bar<'a, T> {{
    #[doc = "Shows it to people."]
    fn fmt(&self) -> String {{
{BODY}    }}
}}
impl Debug for Bar {{
    /** Shows it to programmers. */
    fn fmt(&self) -> String {{
{BODY}    }}
}}
mod inner {{
    // Just a comment of three words.
    fn bare() {{
{BODY}    }}
}}
#[cfg(test)]
mod tests {{
    /// Not taken at all.
    fn helper() {{
{BODY}    }}
}}
/// Not taken as well.
#[test]
fn works() {{
{BODY}}}
"""

CPP = f"""
#pragma once
FMT_BEGIN_NAMESPACE
namespace fmt::detail {{
/**
 * @brief Writes the value once.
 * @tparam T its type
 */
template <typename T> FMT_CONSTEXPR20 auto write(T value) -> T {{
{BODY}  if FMT_CONSTEXPR20 (value) one();
  return write<T>(value);
}}
int x;  ///< The field before it.
class Buffer {{
 public:
  /// Never taken at all.
  Buffer() : size_(0) {{
{BODY}  }}
  ~Buffer() {{
{BODY}  }}
  bool operator==(Buffer o) const {{
{BODY}  }}
  //! Gives back a pointer
  //! to the data.
  FMT_NODISCARD int* data() const noexcept {{
{BODY}  }}
  void clear() = delete;
}};
}}
FMT_FUNC void Buffer<int>::grow(int size) {{
{BODY}}}
FMT_END_NAMESPACE
"""


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "javascript",
            JAVASCRIPT,
            {
                "req.header": "Set the `value` of the field.",
                "plain": "",
                "words": "Give the *two* words back.",
                "bare": "",
                "query": "Give the query string parsed.",
                "Shop.total": "Sum up every item.",
                "Shop.#secret": "",
                "inside": "Found inside of a wrapper.",
                "pair": "One of an object.",
            },
        ),
        (
            "java",
            JAVA,
            {
                "Shop.fromJson": "Converts json to a Tree tree & back.",
                "Shop.fromJson~2": "Converts with a reader.",
                "Shop.get": "",
                "Shop.Kind.run": "",
            },
        ),
        (
            "go",
            GO,
            {
                "Engine.Use": "Use attaches a middleware to the router.",
                "far": "",
                "Serve": "Serve runs the server.",
            },
        ),
        (
            "rust",
            RUST,
            {
                "add": "Adds both of them.",
                "Bar.fmt": "Shows it to people.",
                "Bar.fmt~2": "Shows it to programmers.",
                "inner.bare": "",
            },
        ),
        (
            "cpp",
            CPP,
            {
                "fmt.detail.write": "Writes the value once.",
                "fmt.detail.Buffer.data": "Gives back a pointer to the data.",
                "Buffer.grow": "",
            },
        ),
    ],
    ids=["javascript", "java", "go", "rust", "cpp"],
)  # fmt: skip
def test_functions_and_their_documentation(language: str, text: str, expected: dict[str, str]) -> None:
    assert documented(language, text) == expected
    assert documented(language, text.replace("\n", "\r\n")) == expected


@pytest.mark.parametrize(
    ("language", "text", "name", "hidden"),
    [
        (
            "javascript",
            JAVASCRIPT,
            "req.header",
            f"req.Func = function Func(name) {{\n{BODY}  return this.Func(name); // header\n}};",
        ),
        (
            "java",
            JAVA,
            "Shop.fromJson",
            f'@Override\npublic <S> S Func(String json) {{\n{BODY}  return Func(json, "Func");\n}}',
        ),
        (
            "cpp",
            CPP,
            "fmt.detail.write",
            f"template <typename T> FMT_CONSTEXPR20 auto Func(T value) -> T {{\n{BODY}"
            "  if FMT_CONSTEXPR20 (value) one();\n  return Func<T>(value);\n}",
        ),
    ],
)
def test_code_and_its_form_without_the_name(language: str, text: str, name: str, hidden: str) -> None:
    found = functions(language, text)[name]
    assert [line.strip() for line in found.hidden.split("\n")] == [s.strip() for s in hidden.split("\n")]
    assert found.hidden.replace("Func", found.own) == found.code


def test_packages_are_folders_and_files() -> None:
    (found,) = functions("go", GO.partition("// Far")[0]).values()
    assert (found.id, found.package) == ("src/file:Engine.Use", ("src", "file"))


def test_files_of_each_language_without_tests_and_what_others_or_programs_wrote(tmp_path: Path) -> None:
    kept = {
        "javascript": ("a.cjs", "a.js", "a.jsx", "lib/a.mjs", "lib/latest.js"),
        "java": ("src/main/java/a/Attest.java", "src/main/java/a/Shop.java"),
        "go": ("a.go", "test_helpers.go"),
        "rust": ("src/lib.rs",),
        "cpp": ("include/a.h", "src/a.cc", "src/a.cpp"),
    }
    dropped = [
        *(
            "a.min.js",
            "a.test.js",
            "a.spec.jsx",
            "test.js",
            "test/a.js",
            "node_modules/a/a.js",
            "vendor/a.js",
        ),
        *("dist/a.js", "__tests__/a.js", "lib/a.bundle.js", ".hidden/a.js", "a.ts"),
        *("src/test/java/a/Shop.java", "src/main/java/a/ShopTest.java", "src/main/java/a/TestShop.java"),
        *("a_test.go", "a.pb.go", "vendor/a/a.go", "testdata/a.go", "a_gen.go"),
        *("tests/a.rs", "target/debug/a.rs", "src/tests.rs", "third_party/a.rs"),
        *("test/a.cc", "src/a_test.cc", "src/a-test.cc", "src/a_unittest.cpp", "a.pb.h", "build/a.cc", "a.c"),
    ]
    for path in [*(path for paths in kept.values() for path in paths), *dropped]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert find_source_files(tmp_path).files == kept
    assert find_source_files(tmp_path, ["go"]).files == {"go": kept["go"]}
    for path in ("src/a.cc", "src/a.cpp"):
        (tmp_path / path).unlink()
    assert "cpp" not in find_source_files(tmp_path).files, "headers alone may be of C"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"// Code generated by a tool. DO NOT EDIT.\n{GO}", "generated"),
        ("func a() {" + "x();" * 500 + "}\n", "minified"),
    ],
)
def test_files_that_a_program_wrote(text: str, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        functions("go", text)
    with pytest.raises(UnreadableError, match="cannot be parsed"):
        list(parse_functions(b"\xff", "a.go", "go"))
