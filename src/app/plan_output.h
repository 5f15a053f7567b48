// --dry-run of train, host and join: the plan as a table for people or one JSON object.
#pragma once

#include "base/result.h"
#include "train/spec.h"

namespace loom::app {

struct PlanOptions {
  std::uint32_t peers = 1;
  bool measure = true;  ///< time real inner steps, for tokens a second
};

Status PrintPlan(train::RunFile run, const PlanOptions& options, bool json);

}  // namespace loom::app
