// Every verb of the command line, one function and one file each.
#pragma once

#include "app/args.h"

namespace loom::app {

Verb DemoVerb();
Verb InitVerb();
Verb ImportVerb();
Verb TrainVerb();
Verb HostVerb();
Verb JoinVerb();
Verb GenerateVerb();
Verb EvalVerb();
Verb ExportVerb();
Verb DataCheckVerb();
Verb TokenizerEncodeVerb();
Verb TokenizerDecodeVerb();
Verb TokenizerTrainVerb();
Verb StatusVerb();
Verb LogVerb();
Verb InviteVerb();
Verb OwnerVerb();
Verb DelegateVerb();
Verb AmendVerb();
Verb ContinueVerb();
Verb PauseVerb();
Verb ResumeVerb();
Verb FinishVerb();
Verb LeaveVerb();
Verb DoctorVerb();
Verb BenchVerb();

}  // namespace loom::app
