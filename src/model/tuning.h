// Checks of ModelConfig::tuning; the sets of parameters that it makes are declared in config.h.
#pragma once

#include "model/config.h"

namespace loom::model {

/// The error names the key, the value and what there is to choose from. Requires: the rest of
/// `config` is valid.
Status ValidateTuning(const ModelConfig& config);

}  // namespace loom::model
