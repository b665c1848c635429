"""Included by bridge.pyx: vocabularies and merges of tokenizers, read without objects between.

They are read as tokenizers are written. What is written otherwise is left to
cowmlx.text.tokenizer_parts, which also finds out what is wrong with it. The bytes of a bytes object
end with a 0, at which every loop here ends, so that none passes their end.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp

cdef enum:
    MAX_PROBES = 256  # so many slots beside each other are taken in no vocabulary but a made one
    DIGITS = 10  # of an id

cdef enum Outcome:
    SCANNED
    IRREGULAR
    NO_MEMORY

cdef struct Scan:
    const uint8_t* at
    uint8_t* scratch  # for a text with escapes
    size_t room

cdef struct Span:
    const uint8_t* text
    size_t size

cdef struct Numbers:
    uint32_t* values
    size_t count
    size_t room

cdef struct Slot:
    uint32_t place  # of a text, and 1; 0: none
    uint32_t mark  # of its hash


cdef bint add_number(Numbers* numbers, uint32_t value) noexcept nogil:
    """Add a number; false without memory."""
    cdef uint32_t* grown
    cdef size_t room
    if numbers.count == numbers.room:
        room = 2 * numbers.room + 1024
        grown = <uint32_t*> realloc(numbers.values, room * sizeof(uint32_t))
        if grown == NULL:
            return False
        numbers.values = grown
        numbers.room = room
    numbers.values[numbers.count] = value
    numbers.count += 1
    return True


cdef object as_array(Numbers* numbers):
    from array import array

    made = array("I")
    if numbers.count:
        made.frombytes((<char*> numbers.values)[:numbers.count * sizeof(uint32_t)])
    return made


cdef uint8_t next_sign(Scan* scan) noexcept nogil:
    """Return the next byte that is no white space, which is not passed; 0 at the end."""
    cdef const uint8_t* at = scan.at
    while at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9:
        at += 1
    scan.at = at
    return at[0]


cdef bint expect(Scan* scan, uint8_t sign) noexcept nogil:
    if next_sign(scan) != sign:
        return False
    scan.at += 1
    return True


cdef bint read_id(Scan* scan, uint32_t* found) noexcept nogil:
    cdef const uint8_t* begin = scan.at
    cdef uint64_t value = 0
    while c'0' <= scan.at[0] <= c'9' and scan.at - begin < DIGITS:
        value = 10 * value + (scan.at[0] - <uint8_t> c'0')
        scan.at += 1
    if scan.at == begin or value > UINT32_MAX or (begin[0] == c'0' and scan.at - begin > 1):
        return False
    found[0] = <uint32_t> value
    return True


cdef Outcome read_text(Scan* scan, Span* found) noexcept nogil:
    """Read a string; one with escapes lies in the scratch until the next one is read."""
    cdef const uint8_t* begin
    cdef const uint8_t* at
    if next_sign(scan) != c'"':
        return IRREGULAR
    begin = at = scan.at + 1
    while at[0] != c'"':
        if at[0] == c'\\':
            return read_escaped(scan, found)
        if at[0] < 32:
            return IRREGULAR
        at += 1
    found.text = begin
    found.size = at - begin
    scan.at = at + 1
    return SCANNED


cdef Outcome read_escaped(Scan* scan, Span* found) noexcept nogil:
    cdef const uint8_t* at = scan.at + 1
    cdef const uint8_t* end = at
    cdef uint8_t* out
    cdef uint32_t point
    while end[0] != c'"':
        if end[0] == c'\\':
            end += 1
        if end[0] < 32:
            return IRREGULAR
        end += 1
    if scan.room < <size_t> (end - at):  # no escape is shorter than what it stands for
        out = <uint8_t*> realloc(scan.scratch, 2 * (end - at))
        if out == NULL:
            return NO_MEMORY
        scan.scratch = out
        scan.room = 2 * (end - at)
    out = scan.scratch
    while at < end:
        if at[0] != c'\\':
            out[0] = at[0]
            out += 1
            at += 1
            continue
        at = unescape(at, end, &point)
        if at == NULL:
            return IRREGULAR
        out = write_point(out, point)
    found.text = scan.scratch
    found.size = out - scan.scratch
    scan.at = end + 1
    return SCANNED


cdef const uint8_t* unescape(const uint8_t* at, const uint8_t* end, uint32_t* point) noexcept nogil:
    """Read an escape, and return where it ends; NULL if it stands for no character."""
    cdef uint8_t sign = at[1]
    cdef uint32_t low
    if sign == c'u':
        point[0] = four_digits(at + 2, end)
        at += 6
        if not 0xD800 <= point[0] < 0xE000:
            return at if point[0] <= 0xFFFF else NULL
        if point[0] >= 0xDC00 or end - at < 6 or at[0] != c'\\' or at[1] != c'u':
            return NULL
        low = four_digits(at + 2, end)
        if not 0xDC00 <= low < 0xE000:
            return NULL
        point[0] = 0x10000 + ((point[0] - 0xD800) << 10) + (low - 0xDC00)
        return at + 6
    if sign == c'"' or sign == c'\\' or sign == c'/':
        point[0] = sign
    elif sign == c'b':
        point[0] = 8
    elif sign == c't':
        point[0] = 9
    elif sign == c'n':
        point[0] = 10
    elif sign == c'f':
        point[0] = 12
    elif sign == c'r':
        point[0] = 13
    else:
        return NULL
    return at + 2


cdef uint32_t four_digits(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return the value of four hexadecimal digits; UINT32_MAX if there are no four."""
    cdef uint32_t value = 0
    cdef uint8_t sign
    cdef int place
    if end - at < 4:
        return UINT32_MAX
    for place in range(4):
        sign = at[place]
        if c'0' <= sign <= c'9':
            sign -= c'0'
        elif c'a' <= (sign | 32) <= c'f':
            sign = (sign | 32) - <uint8_t> c'a' + 10
        else:
            return UINT32_MAX
        value = 16 * value + sign
    return value


cdef uint8_t* write_point(uint8_t* out, uint32_t point) noexcept nogil:
    """Write a character in UTF-8, and return where it ends."""
    if point < 0x80:
        out[0] = <uint8_t> point
        return out + 1
    if point < 0x800:
        out[0] = <uint8_t> (0xC0 | point >> 6)
        out[1] = <uint8_t> (0x80 | point & 63)
        return out + 2
    if point < 0x10000:
        out[0] = <uint8_t> (0xE0 | point >> 12)
        out[1] = <uint8_t> (0x80 | point >> 6 & 63)
        out[2] = <uint8_t> (0x80 | point & 63)
        return out + 3
    out[0] = <uint8_t> (0xF0 | point >> 18)
    out[1] = <uint8_t> (0x80 | point >> 12 & 63)
    out[2] = <uint8_t> (0x80 | point >> 6 & 63)
    out[3] = <uint8_t> (0x80 | point & 63)
    return out + 4


cdef uint64_t hash_of(const Span* span) noexcept nogil:
    cdef uint64_t made = span.size
    cdef uint64_t word = 0
    cdef size_t at = 0
    while span.size - at >= 8:
        memcpy(&word, span.text + at, 8)
        made = (made ^ word) * <uint64_t> 0x9E3779B97F4A7C15
        made ^= made >> 32
        at += 8
    word = 0
    memcpy(&word, span.text + at, span.size - at)
    made = (made ^ word) * <uint64_t> 0x9E3779B97F4A7C15
    return made ^ made >> 29


cdef class Vocabulary:
    """The tokens of a vocabulary, in the order of the file.

    Attributes:
        end: the place behind the vocabulary.
    """

    cdef readonly Py_ssize_t end
    cdef uint8_t* texts  # behind each other
    cdef size_t room
    cdef Numbers ends  # of the texts
    cdef Numbers numbers  # their ids
    cdef Slot* slots
    cdef size_t mask

    def __dealloc__(self):
        free(self.texts)
        free(self.ends.values)
        free(self.numbers.values)
        free(self.slots)

    def strings(self):
        """Return the texts.

        Raises:
            UnicodeDecodeError: one is no UTF-8.
        """
        cdef list made = []
        cdef Span span
        cdef size_t place
        for place in range(self.ends.count):
            span = self.span(place)
            made.append(PyUnicode_DecodeUTF8(<const char*> span.text, span.size, NULL))
        return made

    def ids(self):
        """Return the ids, an array."""
        return as_array(&self.numbers)

    def merges(self, bytes data, Py_ssize_t at):
        """Read an array of merges.

        Returns:
            The place behind it, and arrays of the places of what is merged, left and right; None
            if it is not written as it usually is, or merges what is no token.
        """
        cdef Scan scan = Scan(<const uint8_t*> PyBytes_AS_STRING(data) + at, NULL, 0)
        cdef Numbers lefts = Numbers(NULL, 0, 0)
        cdef Numbers rights = Numbers(NULL, 0, 0)
        cdef Outcome outcome
        try:
            with nogil:
                outcome = self.scan_merges(&scan, &lefts, &rights)
            if outcome == NO_MEMORY:
                raise MemoryError
            if outcome == IRREGULAR:
                return None
            at = scan.at - <const uint8_t*> PyBytes_AS_STRING(data)
            return at, as_array(&lefts), as_array(&rights)
        finally:
            free(scan.scratch)
            free(lefts.values)
            free(rights.values)

    cdef Span span(self, size_t place) noexcept nogil:
        cdef Span found
        cdef size_t begin = self.ends.values[place - 1] if place else 0
        found.text = self.texts + begin
        found.size = self.ends.values[place] - begin
        return found

    cdef Outcome scan(self, Scan* scan) noexcept nogil:
        cdef Outcome outcome
        cdef Span span
        cdef uint32_t number = 0
        if not expect(scan, c'{'):
            return IRREGULAR
        while True:
            outcome = read_text(scan, &span)
            if outcome != SCANNED:
                return outcome
            if not self.add(&span):
                return NO_MEMORY
            if not expect(scan, c':'):
                return IRREGULAR
            next_sign(scan)
            if self.ends.values[self.ends.count - 1] == UINT32_MAX or not read_id(scan, &number):
                return IRREGULAR
            if not add_number(&self.numbers, number):
                return NO_MEMORY
            if next_sign(scan) == c'}':
                scan.at += 1
                return self.fill_slots()
            if not expect(scan, c','):
                return IRREGULAR

    cdef bint add(self, const Span* span) noexcept nogil:
        """Add a text; false without memory. Beyond 4 GiB all end at UINT32_MAX."""
        cdef size_t begin = self.ends.values[self.ends.count - 1] if self.ends.count else 0
        cdef size_t room
        cdef uint8_t* grown
        if begin + span.size >= UINT32_MAX:
            return add_number(&self.ends, UINT32_MAX)
        if begin + span.size > self.room:
            room = 2 * (begin + span.size) + 4096
            grown = <uint8_t*> realloc(self.texts, room)
            if grown == NULL:
                return False
            self.texts = grown
            self.room = room
        memcpy(self.texts + begin, span.text, span.size)
        return add_number(&self.ends, <uint32_t> (begin + span.size))

    cdef Outcome fill_slots(self) noexcept nogil:
        cdef size_t count = 16
        cdef size_t place
        cdef Span span
        cdef Slot* slot
        while count < 2 * self.ends.count:
            count *= 2
        self.slots = <Slot*> calloc(count, sizeof(Slot))
        if self.slots == NULL:
            return NO_MEMORY
        self.mask = count - 1
        for place in range(self.ends.count):
            span = self.span(place)
            slot = self.slot_of(&span)
            if slot == NULL or slot.place:  # it is there twice
                return IRREGULAR
            slot.place = <uint32_t> place + 1
            slot.mark = <uint32_t> (hash_of(&span) >> 32)
        return SCANNED

    cdef Slot* slot_of(self, const Span* span) noexcept nogil:
        """Return the slot of a text, or that which it would have; NULL if it is far."""
        cdef uint64_t hash = hash_of(span)
        cdef size_t at = hash & self.mask
        cdef Slot* slot
        cdef Span known
        cdef int probe
        for probe in range(MAX_PROBES):
            slot = self.slots + at
            if slot.place == 0:
                return slot
            if slot.mark == <uint32_t> (hash >> 32):
                known = self.span(slot.place - 1)
                if known.size == span.size and memcmp(known.text, span.text, span.size) == 0:
                    return slot
            at = (at + 1) & self.mask
        return NULL

    cdef bint add_place(self, Numbers* places, const Span* span, Outcome* outcome) noexcept nogil:
        """Add the place of a text; false, and why, if there is none."""
        cdef Slot* slot = self.slot_of(span)
        outcome[0] = IRREGULAR
        if slot == NULL or slot.place == 0:
            return False
        outcome[0] = NO_MEMORY
        return add_number(places, slot.place - 1)

    cdef Outcome scan_merges(self, Scan* scan, Numbers* lefts, Numbers* rights) noexcept nogil:
        cdef Outcome outcome
        cdef bint pairs
        if not expect(scan, c'['):
            return IRREGULAR
        pairs = next_sign(scan) == c'['
        while True:
            if pairs:
                outcome = self.scan_pair(scan, lefts, rights)
            else:
                outcome = self.scan_words(scan, lefts, rights)
            if outcome != SCANNED:
                return outcome
            if next_sign(scan) == c']':
                scan.at += 1
                return SCANNED
            if not expect(scan, c','):
                return IRREGULAR

    cdef Outcome scan_pair(self, Scan* scan, Numbers* lefts, Numbers* rights) noexcept nogil:
        """Read ["LEFT", "RIGHT"]."""
        cdef Outcome outcome
        cdef Span span
        if not expect(scan, c'['):
            return IRREGULAR
        outcome = read_text(scan, &span)
        if outcome != SCANNED or not self.add_place(lefts, &span, &outcome):
            return outcome
        if not expect(scan, c','):
            return IRREGULAR
        outcome = read_text(scan, &span)
        if outcome != SCANNED or not self.add_place(rights, &span, &outcome):
            return outcome
        return SCANNED if expect(scan, c']') else IRREGULAR

    cdef Outcome scan_words(self, Scan* scan, Numbers* lefts, Numbers* rights) noexcept nogil:
        """Read "LEFT RIGHT"."""
        cdef Outcome outcome
        cdef Span span
        cdef Span part
        cdef size_t at = 0
        outcome = read_text(scan, &span)
        if outcome != SCANNED:
            return outcome
        while at < span.size and span.text[at] != c' ':
            at += 1
        if at == span.size or (span.size >= 8 and memcmp(span.text, b"#version", 8) == 0):
            return IRREGULAR
        part.text = span.text
        part.size = at
        if not self.add_place(lefts, &part, &outcome):
            return outcome
        part.text = span.text + at + 1
        part.size = span.size - at - 1
        for at in range(part.size):
            if part.text[at] == c' ':
                return IRREGULAR
        if not self.add_place(rights, &part, &outcome):
            return outcome
        return SCANNED


def read_vocabulary(bytes data, Py_ssize_t at):
    """Read a vocabulary, an object that begins at a place.

    Returns:
        It; None if it is not written as it usually is, or names a token twice.
    """
    cdef Vocabulary made = Vocabulary.__new__(Vocabulary)
    cdef Scan scan = Scan(<const uint8_t*> PyBytes_AS_STRING(data) + at, NULL, 0)
    cdef Outcome outcome
    with nogil:
        outcome = made.scan(&scan)
        free(scan.scratch)
    if outcome == NO_MEMORY:
        raise MemoryError
    made.end = scan.at - <const uint8_t*> PyBytes_AS_STRING(data)
    return made if outcome == SCANNED else None
