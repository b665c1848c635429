"""Included by bridge.pyx: vocabularies and merges of tokenizers, read without objects between.

They are read as tokenizers are written. What is written otherwise is left to
cowmlx.text.tokenizer_parts, which also finds out what is wrong with it. The bytes of a bytes object
end with a 0, at which every loop here ends, so that none passes their end.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memchr, memcmp, strchr

cdef extern from *:
    """
    #define cow_fetch(place) __builtin_prefetch(place)
    """
    void cow_fetch(const void* place) noexcept nogil

cdef enum:
    BATCH = 64  # texts that are looked up together: the cache misses of one take most of its time
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

cdef struct Batch:
    Span spans[BATCH]
    uint64_t hashes[BATCH]
    size_t count

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


cdef object as_array(const uint32_t* values, size_t count):
    from array import array

    made = array("I")
    if count:
        made.frombytes((<const char*> values)[:count * sizeof(uint32_t)])
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
    found[0] = Span(begin, at - begin)
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
    found[0] = Span(scan.scratch, out - scan.scratch)
    scan.at = end + 1
    return SCANNED


cdef const uint8_t* unescape(const uint8_t* at, const uint8_t* end, uint32_t* point) noexcept nogil:
    """Read an escape, and return where it ends; NULL if it stands for no character."""
    cdef const char* letters = b'"\\/btnfr'
    cdef const char* meant = b'"\\/\b\t\n\f\r'
    cdef const char* known
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
    known = strchr(letters, sign)
    if sign == 0 or known == NULL:
        return NULL
    point[0] = <uint8_t> meant[known - letters]
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
        return as_array(self.numbers.values, self.numbers.count)

    def merges(self, bytes data, Py_ssize_t at):
        """Read an array of merges.

        Returns:
            The place behind it, and arrays of the places of what is merged, left and right; None
            if it is not written as it usually is, or merges what is no token.
        """
        cdef Scan scan = Scan(<const uint8_t*> PyBytes_AS_STRING(data) + at, NULL, 0)
        cdef Numbers places = Numbers(NULL, 0, 0)
        cdef Outcome outcome
        try:
            with nogil:
                outcome = self.scan_merges(&scan, &places)
            if outcome == NO_MEMORY:
                raise MemoryError
            if outcome == IRREGULAR:
                return None
            at = scan.at - <const uint8_t*> PyBytes_AS_STRING(data)
            made = as_array(places.values, places.count)
            return at, made[::2], made[1::2]
        finally:
            free(scan.scratch)
            free(places.values)

    cdef Span span(self, size_t place) noexcept nogil:
        cdef size_t begin = self.ends.values[place - 1] if place else 0
        return Span(self.texts + begin, self.ends.values[place] - begin)

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
        cdef uint64_t hash
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
            hash = hash_of(&span)
            slot = self.slot_of(&span, hash)
            if slot == NULL or slot.place:  # it is there twice
                return IRREGULAR
            slot.place = <uint32_t> place + 1
            slot.mark = <uint32_t> (hash >> 32)
        return SCANNED

    cdef Slot* slot_of(self, const Span* span, uint64_t hash) noexcept nogil:
        """Return the slot of a text, or that which it would have; NULL if it is far."""
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

    cdef Outcome take(
        self, Scan* scan, const Span* span, Batch* batch, Numbers* places
    ) noexcept nogil:
        """Add the place of a text, at once or with others."""
        cdef uint64_t hash = hash_of(span)
        cow_fetch(self.slots + (hash & self.mask))
        batch.spans[batch.count] = span[0]
        batch.hashes[batch.count] = hash
        batch.count += 1
        if batch.count == BATCH or span.text == scan.scratch:  # where the next text may lie
            return self.look_up(batch, places)
        return SCANNED

    cdef Outcome look_up(self, Batch* batch, Numbers* places) noexcept nogil:
        """Add the places of the texts of a batch."""
        cdef size_t at
        cdef uint32_t place
        cdef Slot* slot
        for at in range(batch.count):
            place = self.slots[batch.hashes[at] & self.mask].place
            cow_fetch(self.ends.values + place)
        for at in range(batch.count):
            place = self.slots[batch.hashes[at] & self.mask].place
            if place > 1:
                cow_fetch(self.texts + self.ends.values[place - 2])
        for at in range(batch.count):
            slot = self.slot_of(&batch.spans[at], batch.hashes[at])
            if slot == NULL or slot.place == 0:
                return IRREGULAR
            if not add_number(places, slot.place - 1):
                return NO_MEMORY
        batch.count = 0
        return SCANNED

    cdef Outcome scan_merges(self, Scan* scan, Numbers* places) noexcept nogil:
        cdef Outcome outcome
        cdef Batch batch
        cdef bint pairs
        batch.count = 0
        if not expect(scan, c'['):
            return IRREGULAR
        pairs = next_sign(scan) == c'['
        while True:
            if pairs:
                outcome = self.scan_pair(scan, &batch, places)
            else:
                outcome = self.scan_words(scan, &batch, places)
            if outcome != SCANNED:
                return outcome
            if next_sign(scan) == c']':
                scan.at += 1
                return self.look_up(&batch, places)
            if not expect(scan, c','):
                return IRREGULAR

    cdef Outcome scan_pair(self, Scan* scan, Batch* batch, Numbers* places) noexcept nogil:
        """Read ["LEFT", "RIGHT"]."""
        cdef Outcome outcome
        cdef Span span
        cdef int side
        if not expect(scan, c'['):
            return IRREGULAR
        for side in range(2):
            if side == 1 and not expect(scan, c','):
                return IRREGULAR
            outcome = read_text(scan, &span)
            if outcome == SCANNED:
                outcome = self.take(scan, &span, batch, places)
            if outcome != SCANNED:
                return outcome
        return SCANNED if expect(scan, c']') else IRREGULAR

    cdef Outcome scan_words(self, Scan* scan, Batch* batch, Numbers* places) noexcept nogil:
        """Read "LEFT RIGHT"."""
        cdef Outcome outcome
        cdef Span span
        cdef Span part
        cdef const uint8_t* gap
        outcome = read_text(scan, &span)
        if outcome != SCANNED:
            return outcome
        gap = <const uint8_t*> memchr(span.text, c' ', span.size)
        if gap == NULL or (span.size >= 8 and memcmp(span.text, b"#version", 8) == 0):
            return IRREGULAR
        part = Span(span.text, gap - span.text)
        outcome = self.take(scan, &part, batch, places)
        if outcome != SCANNED:
            return outcome
        part = Span(gap + 1, span.size - part.size - 1)
        if memchr(part.text, c' ', part.size) != NULL:
            return IRREGULAR
        outcome = self.take(scan, &part, batch, places)
        if outcome == SCANNED and span.text == scan.scratch:
            outcome = self.look_up(batch, places)
        return outcome


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
