// What a failed system call means to the person who runs the program.
#pragma once

#include <string>

#include "base/result.h"

namespace loom {

/// The code that errno value `error` stands for, and the next step where there is one. `what` names
/// the file and what was done to it; the system's own words for the error follow it.
Error OsError(int error, std::string what);

}  // namespace loom
