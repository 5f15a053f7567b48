// Every verb of the command line, one function and one file each.
#pragma once

#include "app/args.h"

namespace loom::app {

Verb DemoVerb();
Verb InitVerb();
Verb TrainVerb();
Verb GenerateVerb();
Verb EvalVerb();
Verb ExportVerb();
Verb DataCheckVerb();

}  // namespace loom::app
