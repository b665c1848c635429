"""Chat templates that would run for ever, or fill the memory, if they were let."""

from __future__ import annotations

_NS = "{% set ns = namespace(a=@) %}{% for i in range(99) %}{% set ns.a = # %}{% endfor %}"


def _grow(start: str, step: str, last: str = "") -> str:
    """Return a template that applies a step to a value 99 times."""
    return _NS.replace("@", start).replace("#", step) + last


_NESTED = "{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}"
_DEEP = "{% set ns = namespace(a=[]) %}{% for i in range(9999) %}{% set ns.a = [ns.a] %}"
_TUPLES = "{% set ns = namespace(a=(1,)) %}{% for i in range(99) %}{% set ns.a = (ns.a, ns.a) %}"
_TWINS = (
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(99) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
_MANY = "{% for i in range(99999) %}{% for j in range(99999) %}#{% endfor %}{% endfor %}"
_COLLIDING = "{% set ns = namespace(a=[], n=2305843009213693951) %}{% for i in range(9999) %}"
_TEXT = "('a' * 30000000)"


def _many(step: str) -> str:
    """Return a template that does a step ten thousand million times."""
    return _MANY.replace("#", step)


# What each has to fail with: a part of the message that names the bound. None where it may as
# well end with a harmless result, as it does if it is no program of the template language.
STEPS, BYTES, TIME, DIGITS = "steps", "bytes", "longer than 1 s", "digits"
WORK = "steps|longer than 1 s|bytes"
RENDERS: dict[str, tuple[str, str | None]] = {
    "sums of many ranges": ("{{ ([range(100000)]*1000000)|map('sum')|list|length }}", WORK),
    "wordwrap": ("{{ ('ab ' * 10000000)|wordwrap(3) }}", "No filter named 'wordwrap'"),
    "urlize": ("{{ ('www.a.de ' * 1000000)|urlize }}", "No filter named 'urlize'"),
    "striptags": ("{{ ('<!--' * 1000000)|striptags }}", "No filter named 'striptags'"),
    "pprint": (_NESTED + "{% endfor %}{{ ns.a|pprint }}", "No filter named 'pprint'"),
    "lipsum": ("{{ lipsum(n=3000000) }}", None),
    "upper again and again": (_grow(_TEXT, "ns.a|upper"), BYTES),
    "lower by a method": (_grow(_TEXT, "ns.a.lower()"), BYTES),
    "casefold of letters that grow": ("{{ ('\u0390' * 20000000).casefold() }}", BYTES),
    "title": (f"{{{{ {_TEXT}|title }}}}", WORK),
    "capitalize": (_grow(_TEXT, "ns.a|capitalize"), BYTES),
    "product of integers": (_grow("3", "ns.a * ns.a"), DIGITS),
    "power": ("{{ 9 ** (9 ** 9) }}", DIGITS),
    "power, again": ("{{ (2 ** 14000) ** 14000 }}", DIGITS),
    "sum of integers": (_grow("7 ** 4000", "ns.a * ns.a"), DIGITS),
    "digits of a text": ("{{ ('9' * 5000000)|int }}", DIGITS),
    "hexadecimal digits of a text": ("{{ ('f' * 5000000)|int(base=16) }}", DIGITS),
    "digits of a float": ("{{ ('9' * 5000000)|float }}", DIGITS),
    "rounding to many places": ("{{ 5|round(-999999999) }}", DIGITS),
    "rounding down to many places": ("{{ 5|round(999999999, 'floor') }}", DIGITS),
    "many quotients": (_many("{% set x = 7 ** 4000 // 3 ** 2000 %}"), WORK),
    "huge literal": ("{{ " + "9" * 5000 + " }}", "more than 4300 digits"),
    "format, wide": ("{{ ('{0:99999}' * 50000).format('a') }}", "wider"),
    "format, narrower": ("{{ ('{0:999}' * 500000).format('a') }}", WORK),
    "format by its argument": ("{{ '{:{w}}'.format(1, w=999999999) }}", "wider"),
    "format of a long text": ("{{ ('{0}' * 50000).format('a' * 1000000) }}", BYTES),
    "format of what is nested": (_NESTED + "{% endfor %}{{ '{!r}'.format(ns.a) }}", WORK),
    "format with many digits": ("{{ ('{:.999f}' * 100000).format(*([1e308] * 100000)) }}", WORK),
    "format_map": ("{{ ('{a}' * 50000).format_map({'a': 'a' * 1000000}) }}", BYTES),
    "percent, wide": ("{{ '%9999999999d' % 1 }}", "wider"),
    "percent, a width that is given": ("{{ '%*d' % (999999999, 1) }}", "width"),
    "percent, precise": ("{{ '%.999999999f' % 1 }}", "wider"),
    "percent, one name often": ("{{ ('%(a)s' * 99999) % {'a': 'a' * 9999999} }}", BYTES),
    "percent, name in parentheses": ("{{ ('%((a))s' * 99999) % {'(a)': 'a' * 99999} }}", None),
    "percent of what is nested": (_NESTED + "{% endfor %}{{ '%s' % ns.a }}", WORK),
    "percent by the filter": ("{{ ('%s' * 99999)|format(*(['a' * 99999] * 99999)) }}", BYTES),
    "lists that double": (_grow("[1]", "ns.a + ns.a"), BYTES),
    "texts that double": (_grow("'ab'", "ns.a ~ ns.a"), BYTES),
    "texts that double by adding": (_grow("'ab'", "ns.a + ns.a"), BYTES),
    "a range that is too long, at the end": (
        _grow("'ab'", "ns.a") + "{% set a = 'ab' %}{% for i in range(9999999) %}{% endfor %}",
        "range",
    ),
    "joined by a long text": ("{{ range(100000)|join('x' * 100000) }}", BYTES),
    "joined by a method": ("{{ ('x' * 100000).join(['a'] * 100000) }}", BYTES),
    "times": ("{{ 'a' * 10 ** 12 }}", BYTES),
    "times, a list": ("{{ ([0] * 10 ** 12)|length }}", BYTES),
    "times, the other way": ("{{ 10 ** 12 * (1, 2) }}", BYTES),
    "replace": ("{{ ('a' * 1000000)|replace('a', 'b' * 10000) }}", BYTES),
    "replace nothing": ("{{ ('a' * 1000000).replace('', 'b' * 10000) }}", BYTES),
    "center": ("{{ 'a'|center(10 ** 9) }}", BYTES),
    "center by a method": ("{{ 'a'.center(10 ** 9) }}", BYTES),
    "ljust": ("{{ 'a'.ljust(10 ** 9) }}", BYTES),
    "zfill": ("{{ 'a'.zfill(10 ** 9) }}", BYTES),
    "expandtabs": ("{{ ('\t' * 1000).expandtabs(10 ** 7) }}", BYTES),
    "encode": ("{{ 'a'.encode() * 6000000000 }}", None),
    "translate": ("{{ 'a'.translate({97: 'a' * 1000000}) }}", None),
    "translate to much": (
        "{{ ('a' * 1000000).translate({97: 'b' * 1000000})|length }}",
        None,
    ),
    "bytes of an integer": ("{{ (1).to_bytes(10 ** 10, 'big')|length }}", None),
    "joined from a stream": ("{{ (['a' * 999999] * 99999)|map('string')|join|length }}", BYTES),
    "joined by a method from a stream": (
        "{{ ''.join((['a' * 999999] * 99999)|map('string'))|length }}",
        BYTES,
    ),
    "joined backwards": ("{{ (['a' * 999999] * 99999)|reverse|join|length }}", BYTES),
    "split": ("{{ ('a,' * 10000000).split(',')|length }}", BYTES),
    "split words": ("{{ ('a ' * 10000000).split()|length }}", WORK),
    "rsplit by what almost fits": (
        "{{ ('a' * 1000000).rsplit('b' + 'a' * 10000, 99999)|length }}",
        WORK,
    ),
    "splitlines": ("{{ ('\\n' * 9999999).splitlines()|length }}", BYTES),
    "partition": (_many("{% set x = ('a' * 1000000).partition('b') %}"), WORK),
    "strip of many characters": (
        _many("{% set x = ('a' * 99999).strip('bcdefgha' * 999) %}"),
        WORK,
    ),
    "tojson, indented": ("{{ [1]|tojson(indent=10 ** 8) }}", BYTES),
    "tojson, indented by a text": ("{{ ([1] * 10000)|tojson(indent='a' * 100000) }}", BYTES),
    "tojson, separated": ("{{ ([1] * 9999)|tojson(separators=('a' * 99999, ':')) }}", BYTES),
    "tojson of what is nested": (_NESTED + "{% endfor %}{{ ns.a|tojson }}", WORK),
    "tojson of what is deep": (_DEEP + "{% endfor %}{{ ns.a|tojson }}", "deeper"),
    "batch": ("{{ [1]|batch(600000000, 0)|list }}", BYTES),
    "slice": ("{{ [1]|slice(600000000)|list }}", WORK),
    "indent": ("{{ ('a\\n' * 100000)|indent(100000) }}", BYTES),
    "truncate": (_many("{{ ('a' * 999999)|truncate(999990) }}"), WORK + "|characters"),
    "sort": (_many("{% set x = range(100000)|sort %}"), WORK),
    "sort of long texts": ("{{ ((['a' * 9999999] * 9999)|sort)|length }}", WORK),
    "sort by many attributes": (
        "{{ ([[1]] * 99)|sort(attribute='0' + ',0' * 9999999) }}",
        "attribute",
    ),
    "a long attribute": ("{{ [1]|map(attribute='a.' * 9999999)|list }}", "attribute"),
    "groupby": (_many("{% set x = ([[1]] * 99999)|groupby(0) %}"), WORK),
    "unique": (_many("{{ range(100000)|unique|list|length }}"), WORK),
    "unique of what collides": (
        _COLLIDING + "{% set ns.a = ns.a + [i * ns.n] %}{% endfor %}{{ ns.a|unique|list|length }}",
        WORK,
    ),
    "keys that collide": (
        _COLLIDING + "{% set ns.a = ns.a + [[i * ns.n, 1]] %}{% endfor %}{{ dict(ns.a)|length }}",
        WORK,
    ),
    "min and max": (_many("{% set x = range(100000)|max %}"), WORK),
    "sum of lists": ("{{ ([[1] * 1000] * 99999)|sum(start=[])|length }}", BYTES),
    "map of map": (_many("{% set x = range(100000)|map('string')|map('int')|list %}"), WORK),
    "chained streams": (_grow("[1]", "ns.a|map('string')", "{{ ns.a|list }}"), "chains"),
    "items of a text": ("{{ ('a' * 60000000)|list|length }}", BYTES),
    "in a text": (_many("{% if ('a' * 99999) in ('a' * 9999999) %}{% endif %}"), WORK),
    "in a text, almost": (_many("{{ ('a' * 5000 + 'b') in ('a' * 9999999) }}"), WORK),
    "count": (_many("{{ ('a' * 9999999).count('aa') }}"), WORK),
    "find": (_many("{{ ('a' * 9999999).find('a' * 999 + 'b') }}"), WORK),
    "rfind": ("{{ ('a' * 9999999).rfind('b' + 'a' * 99999) }}", WORK),
    "in a list": (_many("{{ 'x' in (['y'] * 999999) }}"), WORK),
    "in a list of what is nested": (_NESTED + "{% endfor %}{{ ns.a in [ns.a] * 99 }}", WORK),
    "index": (_many("{{ (['y'] * 999999 + ['x']).index('x') }}"), WORK),
    "a float in a range": (_many("{{ 0.5 in range(99999) }}"), WORK),
    "recursion of a macro": (
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "recurses deeper than 100",
    ),
    "recursion that doubles": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(40) }}",
        WORK,
    ),
    "recursion of a caller": (
        "{% macro f() %}{{ caller() }}{% call f() %}{{ f() }}{% endcall %}{% endmacro %}"
        "{% call f() %}{% endcall %}",
        None,
    ),
    "recursion of a loop": (
        _DEEP + "{% endfor %}{% for x in ns.a recursive %}{{ loop(x) }}{% endfor %}",
        "recurses deeper than 100",
    ),
    "recursion of a loop that doubles": (
        _NESTED.replace("99", "60").replace("=[1]", "=[]")
        + "{% endfor %}{% for x in ns.a recursive %}{{ loop(x) }}{% endfor %}",
        WORK,
    ),
    "recursion of a block": ("{% block a %}{{ self.a() }}{% endblock %}", "recurses deeper than"),
    "loops": (_many(""), WORK),
    "loops over data": (_many("a" * 1000), WORK + "|characters"),
    "a block of data": ("{% set x %}" + _many("a") + "{% endset %}", WORK),
    "loop.changed": (_NESTED + "{{ loop.changed(ns.a, i) }}{% endfor %}", WORK),
    "loop.length of a stream": (
        _many("{% for x in range(99999)|map('string') %}{{ loop.length }}{% break %}{% endfor %}"),
        WORK,
    ),
    "cycler": (
        "{% set c = cycler(*range(99999)) %}" + _many("{{ c.next() }}"),
        WORK + "|characters",
    ),
    "joiner": (
        "{% set join = joiner('a' * 999999) %}" + _many("{{ join() }}"),
        WORK + "|characters",
    ),
    "range": ("{{ range(10 ** 9)|list }}", "range"),
    "range of huge integers": ("{{ range(10 ** 4000, 10 ** 4000 + 9999)|list }}", "digits|range"),
    "dict of itself": (_grow("{}", "dict(ns.a, **{i ~ 'a' * 999999: 1})"), BYTES),
    "dict from keys": (_many("{% set x = dict.fromkeys(range(99999)) %}"), WORK),
    "arguments": (
        "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(*[1] * 9999999) }}",
        BYTES,
    ),
    "names as arguments": (_many("{{ dict(**dict.fromkeys('abcdefgh' * 99, 1)) }}"), WORK),
    "hash of what is nested": (_TUPLES + "{% endfor %}{{ {ns.a: 1} }}", WORK),
    "hash by get": (_TUPLES + "{% endfor %}{{ {}.get(ns.a) }}", WORK),
    "hash by an item": (_TUPLES + "{% endfor %}{{ messages[0][ns.a] }}", WORK),
    "name of what is missing": (_TUPLES + "{% endfor %}{{ [][ns.a].b }}", WORK),
    "equal": (_TWINS + "{{ ns.a == ns.b }}", WORK),
    "equal by a test": (_TWINS + "{{ ns.a is eq(ns.b) }}", WORK),
    "less": (_TWINS + "{{ ns.a < ns.b }}", WORK),
    "equal in a list": (_TWINS + "{{ [ns.a]|select('in', [ns.b])|list }}", WORK),
    "text of what is nested": (_NESTED + "{% endfor %}{{ ns.a|string }}", WORK),
    "text joined of what is nested": (_NESTED + "{% endfor %}{{ ns.a ~ '' }}", WORK),
    "text of a namespace": (_NESTED + "{% endfor %}{{ ns }}", WORK),
    "text of a namespace in itself": (
        "{% set n = namespace() %}{% set n.a = n %}{{ n }}",
        "deeper",
    ),
    "integers too long for Python": ("{{ 2 ** 14280 * 16 }}", DIGITS),
    "strftime": ("{{ strftime_now('%Y' * 1000000) }}", "date"),
    "strftime, wide": (_many("{{ strftime_now('%999999999Y' * 9) }}"), WORK + "|characters"),
    "a long message": ("{{ raise_exception('a' * 60000000) }}", None),
    "a message of what is nested": (_NESTED + "{% endfor %}{{ raise_exception(ns.a) }}", WORK),
    "escape": (_grow("'<' * 1000", "ns.a|forceescape|replace('&', '&&')"), BYTES),
    "safe": (_grow("'<'|safe", "ns.a + ns.a"), BYTES),
    "urlencode": ("{{ ('\u00e9' * 9999999)|urlencode }}", WORK),
    "wordcount": ("{{ ('a ' * 9999999)|wordcount }}", WORK),
    "long output": ("{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}", "characters"),
    "negative": (_many("{% set x = -(7 ** 4000) %}"), WORK),
    "slices": (_grow(_TEXT, "ns.a[::-1]"), BYTES),
    "views": (
        "{% set d = dict.fromkeys(range(99999)) %}" + _many("{{ d.items() == d.items() }}"),
        WORK,
    ),
}
_CHAIN = "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}"
COMPILES: dict[str, tuple[str, str | None]] = {
    "product of constants": ("{{ " + "9999999999 * " * 150 + "1 }}", None),
    "power of constants": ("{% if 9 ** (9 ** 9) %}{% endif %}", DIGITS),
    "a filter of constants": ("{{ 'a'|center(10 ** 9) }}", BYTES),
    "a filter of constants in a test": ("{% if 'a'|center(999999999) == 'b' %}{% endif %}", BYTES),
    "a text of constants": ("{{ ['a'|center(99999999)]|join('b'|center(99999999)) }}", BYTES),
    "a list of constants": ("{{ [0] * 99999999999 }}", BYTES),
    "escaping by a constant": (
        "{% autoescape 'a'|center(999999999) %}{% endautoescape %}",
        "autoescape",
    ),
    "brackets": (_CHAIN, "nests"),
    "lists": ("{{ " + "[" * 3000 + "]" * 3000 + " }}", "nests"),
    "signs": ("{{ " + "- " * 3000 + "1 }}", "nests"),
    "not": ("{{ " + "not " * 3000 + "1 }}", "nests"),
    "else": ("{{ " + "1 if 0 else " * 3000 + "1 }}", "nests"),
    "sums": ("{{ " + "1 + " * 3000 + "1 }}", "nests"),
    "filters": ("{{ 1" + "|string" * 3000 + " }}", "nests"),
    "attributes": ("{{ a" + ".b" * 3000 + " }}", "nests"),
    "comparisons": ("{{ " + "1 < " * 3000 + "1 }}", None),
    "blocks": ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, "nests"),
    "blocks that are set": ("{% set x %}" * 3000 + "{% endset %}" * 3000, "nests"),
    "chains in chains": ("{{ " + "(1 < " * 40 + "1" + " < 2)" * 40 + " }}", None),
    "many parts": ("{{ a }}" * 30000, "parts|steps|longer than 1 s"),
    "many constants": ("{{ [" + "1," * 100000 + "] }}", "parts|steps|longer than 1 s"),
    "many keys": (
        "{{ {" + "".join(f"{i * ((1 << 61) - 1)}: 1," for i in range(3500)) + "} }}",
        WORK,
    ),
    "ten megabytes": ("{{ 1 }}" + "a" * 10_000_000, "longer than 1048576 characters"),
    "ten megabytes of a comment": (
        "{#" + "a" * 10_000_000 + "#}",
        "longer than 1048576 characters",
    ),
    "a long number": ("{{ " + "1" * 900_000 + " }}", "more than 4300 digits"),
    "a long name": ("{{ " + "a" * 500_000 + " }}", None),
    "an unfinished text": ("{{ '" + "\\'" * 200_000, "malformed"),
    "brackets that open tags": ("{% raw %}" + "{% " * 200_000, "malformed"),
    "digits with a line between": ("{{ " + "1_" * 2000 + "1 }}", None),
}
