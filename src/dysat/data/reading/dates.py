"""Dates beyond plain ISO 8601: RFC 2822, named time zones; and a pattern for dates that were not recognised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

RFC_2822 = re.compile(
    r"(?P<weekday>[A-Z][a-z]{2}, *)?(?P<day>\d{1,2}) (?P<month>[A-Z][a-z]{2}) (?P<year>\d{4}) "
    r"(?P<clock>\d{1,2}:\d\d)(?P<seconds>:\d\d)?(?: (?P<zone>[+-]\d{4}|GMT))?"
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
REMARK = re.compile(r"\s*\([^()]*\)$|(?<=[\dZ])\[[\w/+-]+\]$")  # "+0100 (CET)", "+01:00[Europe/Berlin]"
NAMED_ZONE = re.compile(r"(?P<when>.*\d) +(?P<zone>[A-Za-z][\w/+-]*)")
# Hours east of UTC of abbreviations with one meaning.
OFFSETS = (
    {"UTC": 0.0, "UT": 0.0, "GMT": 0.0, "Z": 0.0}
    | {"WET": 0.0, "WEST": 1.0, "CET": 1.0, "CEST": 2.0, "MEZ": 1.0, "MESZ": 2.0, "EET": 2.0, "EEST": 3.0, "MSK": 3.0}
    | {"EST": -5.0, "EDT": -4.0, "CDT": -5.0, "MST": -7.0, "MDT": -6.0, "PST": -8.0, "PDT": -7.0}
    | {"AKST": -9.0, "AKDT": -8.0, "HST": -10.0, "NDT": -2.5, "BRT": -3.0, "ART": -3.0}
    | {"JST": 9.0, "KST": 9.0, "HKT": 8.0, "SGT": 8.0, "WIB": 7.0, "ICT": 7.0, "PKT": 5.0, "NPT": 5.75, "SAST": 2.0}
    | {"AWST": 8.0, "ACST": 9.5, "ACDT": 10.5, "AEST": 10.0, "AEDT": 11.0, "NZST": 12.0, "NZDT": 13.0}
)
# Abbreviations of several zones, and two zones that use each.
AMBIGUOUS = {
    "CST": ("America/Chicago", "Asia/Shanghai"),
    "IST": ("Asia/Kolkata", "Asia/Jerusalem"),
    "BST": ("Europe/London", "Asia/Dhaka"),
    "AST": ("America/Halifax", "Asia/Riyadh"),
    "ADT": ("America/Halifax", "Asia/Baghdad"),
    "NST": ("America/St_Johns", "Europe/Amsterdam"),
    "SST": ("Pacific/Pago_Pago", "Asia/Singapore"),
    "GST": ("Asia/Dubai", "Atlantic/South_Georgia"),
    "AMT": ("America/Manaus", "Asia/Yerevan"),
    "ECT": ("America/Guayaquil", "Europe/Paris"),
    "WST": ("Pacific/Apia", "Australia/Perth"),
}
# Forms tried for an error message. A date with dots has the day first.
DATES = (
    *("%d.%m.%Y", "%d.%m.%y", "%Y.%m.%d", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d"),
    *("%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y", "%d %b %Y", "%d %B %Y", "%d. %b %Y", "%d. %B %Y"),
    *("%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%d-%b-%Y", "%d-%b-%y", "%d/%b/%Y", "%Y-%m-%d", "%a %b %d %Y"),
)
CLOCKS = (
    *("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %H:%M:%S.%f", ", %H:%M", ", %H:%M:%S", ", %I:%M %p"),
    *(", %I:%M:%S %p", "T%H:%M", "T%H:%M:%S", ":%H:%M:%S %z", " %H:%M %z", " %H:%M:%S %z", " %H.%M", " %Hh%M"),
)
WHOLE = ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y", "%H:%M %d.%m.%Y", "%m/%Y", "%m.%Y", "%b %Y", "%B %Y")
SAMPLE = 200  # other texts of the column that a pattern is tried on


def read_date(text: str) -> datetime:
    """Read one date in ISO 8601 or RFC 2822, possibly with a named zone; ValueError if it is neither."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        text = REMARK.sub("", text)
    zone = None
    if named := NAMED_ZONE.fullmatch(text):
        zone, text = _zone(named["zone"]), named["when"]
    found = RFC_2822.fullmatch(text)
    if found:
        day = f"{found['year']}-{MONTHS.index(found['month']) + 1:02}-{int(found['day']):02}"
        stated = (found["zone"] or "").replace("GMT", "+0000")
        text = f"{day}T{found['clock']:0>5}{found['seconds'] or ''}{stated}"
    moment = datetime.fromisoformat(re.sub(r" (?=[+-]\d\d:?\d\d$)", "", text))
    return moment if zone is None or moment.tzinfo else moment.replace(tzinfo=zone)


def rfc_pattern(text: str) -> str | None:
    """Return the pattern of a date in RFC 2822, or None."""
    found = RFC_2822.fullmatch(text)
    if found is None:
        return None
    zone = {None: "", "GMT": " GMT"}.get(found["zone"], " %z")
    return f"{'%a, ' if found['weekday'] else ''}%d %b %Y %H:%M{':%S' if found['seconds'] else ''}{zone}"


def _zone(name: str) -> tzinfo:
    if name.upper() in OFFSETS:
        return timezone(timedelta(hours=OFFSETS[name.upper()]))
    if "/" not in name:
        raise ValueError(f"{name} is not a time zone")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"{name} is not a time zone") from None


def time_complaint(text: str, others: Sequence[str], pattern: str | None, zone: str) -> str:
    """Say what is wrong with a time, and which pattern reads it; `others` are more texts of the column."""
    what = f"does not match time_format={pattern!r}" if pattern else "is not a date or a number"
    if zone != "UTC":
        what += f", or does not exist in {zone}"
    named = NAMED_ZONE.fullmatch(REMARK.sub("", text.strip()))
    if named and named["zone"].upper() in AMBIGUOUS and not pattern:
        one, other = AMBIGUOUS[named["zone"].upper()]
        advice = f"write an offset such as +01:00, or a zone such as {one} or {other}"
        return f"{what}: {named['zone']} is the abbreviation of several time zones; {advice}"
    found = [guess for guess in guess_patterns(text, others) if guess != pattern]
    if not found:
        return what if pattern else f"{what}; time_format= takes the pattern of other dates"
    if len(found) == 1:
        return f"{what}; time_format={found[0]!r} reads it"
    return f"{what}; state {' or '.join(f'time_format={guess!r}' for guess in found)}, whichever is meant"


def guess_patterns(text: str, others: Sequence[str] = ()) -> list[str]:
    """Return the patterns of `strptime` that read a text and most of the others; several if it is ambiguous."""
    forms = (*(date + clock for date in DATES for clock in CLOCKS), *WHOLE)
    fitting = [form for form in forms if _reads(form, text)]
    counts = {form: sum(_reads(form, other) for other in others[:SAMPLE]) for form in fitting}
    best = max(counts.values(), default=0)
    found = [form for form, count in counts.items() if count == best]
    return [form for form in found if "%B" not in form or form.replace("%B", "%b") not in found][:2]  # May is both


def _reads(form: str, text: str) -> bool:
    try:
        datetime.strptime(text.strip(), form)
    except ValueError:
        return False
    return True
