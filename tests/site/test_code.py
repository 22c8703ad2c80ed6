"""Lines as HTML: colour, links, escaping."""

import re

import pytest

from annotator.site.code import Span, attribute, colour, escape, indentation, line_html, split

TAG = re.compile(r"<[^>]*>")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a\n", ["a"]),
        ("a\nb", ["a", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\n", ["a", ""]),
        ("a\x0cb\u2028c\n", ["a\x0cb\u2028c"]),
    ],
)
def test_lines_end_at_newlines_only(text: str, lines: list[str]) -> None:
    assert split(text) == lines


@pytest.mark.parametrize(
    ("line", "html"),
    [
        ("x = 1", 'x = <i class="n">1</i>'),
        ("return None", '<i class="k">return</i> <i class="n">None</i>'),
        ("def f(x):", '<i class="k">def</i> <i class="d">f</i>(x):'),
        ("a < b > c & d", "a &lt; b &gt; c &amp; d"),
        ("x = '</script>'", "x = <i class=\"s\">'&lt;/script&gt;'</i>"),
        ("'alone'", "<i class=\"q\">'alone'</i>"),
        ("f'{len(1)}'", "<i class=\"q\">f'{len(1)}'</i>"),
        ("@a.b(None)", '<i class="p">@a.b</i>(<i class="n">None</i>)'),
        ("x  # why", 'x  <i class="c"># why</i>'),
        ("@cache", '<i class="p">@cache</i>'),
    ],
)
def test_colour(line: str, html: str) -> None:
    assert line_html(colour(line)[0]) == html


def test_a_string_over_lines_keeps_its_colour_on_each() -> None:
    lines = [line_html(bits) for bits in colour('def f():\n    """One.\n\n    Two."""\n')]
    assert lines[1:] == ['    <i class="q">"""One.</i>', "", '<i class="q">    Two."""</i>']


@pytest.mark.parametrize(
    ("spans", "html"),
    [
        ([Span(4, 7, "#L3", "exact", "def sum()")], 'a = <a class="exact" href="#L3" title="def sum()">sum</a>(b)'),
        ([Span(4, 7, "#L3", "inferred")], 'a = <a class="inferred" href="#L3">sum</a>(b)'),
        (
            [Span(8, 9, "#b", "exact"), Span(0, 1, "#a", "exact")],
            '<a class="exact" href="#a">a</a> = sum(<a class="exact" href="#b">b</a>)',
        ),
        ([Span(4, 9, "#long", "exact"), Span(4, 7, "#in", "exact")], 'a = <a class="exact" href="#long">sum(b</a>)'),
        ([Span(0, 1, anchor="m.a")], '<b id="m.a">a</b> = sum(b)'),
        ([Span(0, 0, "#empty", "exact")], "a = sum(b)"),
        (
            [Span(4, 7, "#L3", "exact", 'a "<b>"')],
            'a = <a class="exact" href="#L3" title="a &quot;&lt;b&gt;&quot;">sum</a>(b)',
        ),
    ],
)
def test_links_are_cut_into_the_line(spans: list[Span], html: str) -> None:
    assert line_html([("", "a = sum(b)")], spans) == html


def test_a_link_may_cut_through_a_token() -> None:
    assert line_html(colour("@a.b")[0], [Span(1, 2, "#a", "exact")]) == (
        '<i class="p">@</i><a class="exact" href="#a"><i class="p">a</i></a><i class="p">.b</i>'
    )


def test_dropped_indentation_moves_no_link() -> None:
    bits = colour("        scores = scores.sum()")[0]
    assert (
        line_html(bits, [Span(17, 23, "#s", "exact")], skip=8) == 'scores = <a class="exact" href="#s">scores</a>.sum()'
    )


CPP = [
    ("int add(int a) { return a; }", 'int <i class="d">add</i>(int a) { <i class="k">return</i> a; }'),
    ("struct Pair { int a = 1; };", '<i class="k">struct</i> <i class="d">Pair</i> { int a = <i class="n">1</i>; };'),
    ("#include <vector>", '<i class="p">#include</i> <i class="s">&lt;vector&gt;</i>'),
    ("#pragma once", '<i class="p">#pragma</i> once'),
    ('auto s = "</script>";  // why', 'auto s = <i class="s">"&lt;/script&gt;"</i>;  <i class="c">// why</i>'),
]


@pytest.mark.parametrize("language", ["cpp", "cuda"])
@pytest.mark.parametrize(("line", "html"), CPP)
def test_colour_of_cpp(language: str, line: str, html: str) -> None:
    assert line_html(colour(line, language)[0]) == html


def test_colours_stand_where_the_names_are_behind_letters_of_two_bytes() -> None:
    assert line_html(colour("é = 'ü€'; x = 1  # –")[0]) == (
        'é = <i class="s">\'ü€\'</i>; x = <i class="n">1</i>  <i class="c"># –</i>'
    )
    assert line_html(colour("# coding: latin-1\né = 'ü'")[1]) == "é = <i class=\"s\">'ü'</i>"


@pytest.mark.parametrize(
    "source",
    [
        "x = '<b>&amp;</b>'",
        "a\u202eb = 1",
        "s = '\u2066 \x00 \x1b'",
        's = """\n<script>alert(1)</script>\n"""',
        "{{ jinja }} {% raw %}",
        "# <!-- no comment -->",
        "x\t=\t1",
        "é = 'ü€'",
    ],
)
@pytest.mark.parametrize("language", ["python", "cpp", "cuda", "unknown"])
def test_no_character_is_lost_or_obeyed(source: str, language: str) -> None:
    import html

    shown = [line_html(bits) for bits in colour(source, language)]
    assert [html.unescape(TAG.sub("", line)) for line in shown] == [
        re.sub("[\u202e\u2066\x00\x1b]", lambda m: f"[U+{ord(m[0]):04X}]", line) for line in split(source)
    ]
    assert not {tag for line in shown for tag in TAG.findall(line)} - {
        "</i>",
        *(f'<i class="{c}">' for c in "ksqcndp"),
    }


def test_attribute_escapes_quotes_too() -> None:
    assert (escape('"<'), attribute('"<')) == ('"&lt;', "&quot;&lt;")


@pytest.mark.parametrize(
    ("lines", "width"), [(["    a", "", "      b"], 4), (["a", "  b"], 0), ([], 0), (["", "  "], 0)]
)
def test_indentation(lines: list[str], width: int) -> None:
    assert indentation(lines) == width
