/* The queue of requests: first in, first out; many callers, one dispatch
 * thread. Knows no Python. */
#ifndef COW_QUEUE_H
#define COW_QUEUE_H

#include "bridge.h"

/* Callers. */

/* Submit a request and sleep until the dispatch thread finishes it, delivering
 * its events meanwhile. The request lives on the caller's stack, so this must
 * not return early. False if the queue is closed: nothing was submitted. */
bool cow_queue_submit(cow_request* request);

/* Submit a request and return: its events and its end go to its sink. False if the queue is closed:
 * nothing was submitted. */
bool cow_queue_send(cow_request* request);

/* Make the dispatch thread look at its work again. Async-signal-safe. */
void cow_queue_wake(void);

/* Make it release objects of arrays, with the next request or before it sleeps. */
void cow_queue_wake_to_release(void);

bool cow_queue_is_open(void);

/* Hand an event to the host's callback for it, on the calling thread; true if there is none. */
bool cow_queue_deliver(const cow_callbacks* callbacks, const cow_event* event, cow_batch* batch);

/* The dispatch thread. */

/* Accept requests from now on. */
void cow_queue_open(void);

/* Make the semaphore that the dispatch thread sleeps on; false if the system has none left. */
bool cow_queue_prepare(void);

/* Refuse requests from now on, and cancel those that wait to be taken. */
void cow_queue_close(void);

/* The next request, or NULL if there is none. */
cow_request* cow_queue_take(void);

/* Sleep until there is work, at most for a time; -1: without end. Returns at once if work came
 * since the last sleep. True if it may concern calls that run (an event was taken, a wake, the time
 * is over) or there are objects to release, and not only new requests. */
bool cow_queue_sleep(int64_t microseconds);

/* Whether cow_queue_wake() was called since the last call of this function or of cow_queue_sleep()
 * that reported it. The dispatch thread asks when requests leave it no time to sleep. */
bool cow_queue_was_woken(void);

/* End a request: its caller wakes up, and owns it again. A request that was never submitted may be
 * ended too. */
void cow_queue_finish(cow_request* request, cow_mlx_status status);

/* Hand an event to the request's caller, which frees its texts. Only when
 * cow_queue_can_post(): the last one has been taken, and not been refused. */
void cow_queue_post(cow_request* request, const cow_event* event);
bool cow_queue_can_post(cow_request* request);

/* Spin, for 100 microseconds at most, until the caller has taken the event that was posted last, or
 * there are requests; not for a request with a sink. For calls whose work continues as soon as the
 * event is taken, without the interpreter, which the host may need. */
void cow_queue_linger(cow_request* request);

/* Whether the host's callback has returned false. */
bool cow_queue_refused(cow_request* request);

#endif
