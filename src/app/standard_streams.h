// stdin, stdout and stderr as the program finds and leaves them.
#pragma once

namespace loom::app {

/// Descriptors 0, 1 and 2 that the caller closed are opened on /dev/null: otherwise the next file
/// that is opened becomes stdout, and a peer's log is written into it. Before anything is opened.
void OpenMissingStreams();

/// `code`; or, when that is 0 and something written to stdout did not arrive, an error on stderr
/// and the exit code of an input or output error.
int CheckStdout(int code);

}  // namespace loom::app
