// The generated bindings, so that `sdk/*.c` is all of the SDK.
#include "internal.h"

#include "bindings/bindings.c"
