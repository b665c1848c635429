"""Included by bridge.pyx: what hosts take without waiting for this thread."""


class HostOutlets:
    """The outlets, which C keeps: cowmlx.generation.outlet.Outlets."""

    def begin(self, int32_t handle, uint32_t round, uint32_t cancel_epoch):
        return host.outlets_begin(handle, round, cancel_epoch)

    def clear(self, int32_t handle):
        host.outlets_clear(handle)

    def watch(self, int32_t handle):
        return host.outlets_watch(handle)

    def taken(self, int32_t handle, bint back):
        return host.outlets_taken(handle, back)

    def offer(self, int32_t handle, uint32_t round, piece, bint is_end, bint counts):
        cdef bytes text = piece.text
        cdef cow_offer offer
        offer.status = COW_MLX_DONE if is_end else COW_MLX_OK
        offer.is_end = is_end
        offer.counts = counts
        offer.event_kind = 0
        offer.token = piece.token
        offer.logprob = to_real(piece.logprob)
        offer.finish = piece.finish
        offer.text = PyBytes_AS_STRING(text)
        offer.length = 0 if is_end else PyBytes_GET_SIZE(text)
        offer.name = NULL
        if not host.outlets_offer(handle, round, &offer):
            raise MemoryError

    def offer_failure(self, int32_t handle, uint32_t round, error):
        cdef bytes text
        cdef bytes known
        status, text, known, reason, details = spelled("context_next", error)
        cdef cow_offer offer
        offer.status = status
        offer.is_end = True
        offer.counts = False
        offer.event_kind = 0
        offer.text = PyBytes_AS_STRING(text)
        offer.length = PyBytes_GET_SIZE(text)
        offer.name = PyBytes_AS_STRING(known)
        host.outlets_offer(handle, round, &offer)
        engine.note_failure(handle, status, text.decode(), reason, details)
