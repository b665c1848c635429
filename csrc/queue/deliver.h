/* Events of a call, handed to its host's callbacks on the caller's thread. */
#ifndef COW_DELIVER_H
#define COW_DELIVER_H

#include "bridge.h"

bool cow_deliver(const cow_request* request);

#endif
