// What the machine can compute.
#pragma once

#include "case.h"
#include "machine.h"

namespace sim {

// Runs the kernel of a case; ends the program where there is none for its types.
void run_kernel(Machine& machine, const Case& what);

}  // namespace sim
