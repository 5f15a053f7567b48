// The loom command line: which verbs there are. What each does stands in its own file.
#include <csignal>

#include "app/standard_streams.h"
#include "app/verbs.h"

int main(int argc, char** argv) {
  using namespace loom::app;
  OpenMissingStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // too large a file is an error of the write, which names it
  return CheckStdout(RunCommandLine({DemoVerb(),
                                     InitVerb(),
                                     ImportVerb(),
                                     TrainVerb(),
                                     HostVerb(),
                                     JoinVerb(),
                                     GenerateVerb(),
                                     EvalVerb(),
                                     ExportVerb(),
                                     DataCheckVerb(),
                                     StatusVerb(),
                                     LogVerb(),
                                     InviteVerb(),
                                     OwnerVerb(),
                                     DelegateVerb(),
                                     AmendVerb(),
                                     ContinueVerb(),
                                     PauseVerb(),
                                     ResumeVerb(),
                                     FinishVerb(),
                                     LeaveVerb(),
                                     DoctorVerb(),
                                     BenchVerb(),
                                     TokenizerEncodeVerb(),
                                     TokenizerDecodeVerb(),
                                     TokenizerTrainVerb()},
                                    argc, argv));
}
