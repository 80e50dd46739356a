#include "shim/lifetimes/lifetimes_state.h"

struct lifetimes_state lifetimes_state;
