// Compiles the generated bindings here, so that `sdk/*.c` has all sources of the SDK.
#include "internal.h"

#include "bindings/bindings.c"
