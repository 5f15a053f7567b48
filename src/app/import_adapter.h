// loom import of an adapter's folder: what it is, whether it belongs to the model that it names,
// and the lines of a run.toml that train it further.
#pragma once

#include <string>

#include "base/result.h"

namespace loom::app {

/// Prints what the folder holds. Errors name what a run could not start from.
Status ImportAdapter(const std::string& folder, bool json);

}  // namespace loom::app
