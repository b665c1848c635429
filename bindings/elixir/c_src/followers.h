/* Followers: a process takes what a call that has returned at once computes. The node's poller
 * waits for the library's descriptor; no thread does. */
#ifndef COW_NIF_FOLLOWERS_H
#define COW_NIF_FOLLOWERS_H

#include <erl_nif.h>
#include <stdbool.h>

bool cow_followers_open(ErlNifEnv* env);

/* follow(Object): {ok, Follower} for a context or a model that is being loaded. When this process
 * ends, the context's work is cancelled. */
ERL_NIF_TERM cow_nif_follow(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

/* take(Follower, Ref, pieces | events | load): what there is, in the order of its computation;
 * wait: then {select, Follower, Ref, ready_input} comes once there is more. */
ERL_NIF_TERM cow_nif_take(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

/* leave(Follower): the process takes no more. */
ERL_NIF_TERM cow_nif_leave(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

#endif
