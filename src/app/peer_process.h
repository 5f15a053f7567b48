// Running a peer from the command line: what host, join and train share. Signals, events on stdout,
// lines for people, and the exit status.
#pragma once

#include <functional>
#include <string>

#include "app/output.h"
#include "base/result.h"
#include "node/node.h"

namespace loom::app {

struct PeerProcess {
  node::NodeOptions node;
  bool json = false;
};

/// Called when the node is open and listens, before it runs; prints an invite, say.
using BeforeRun = std::function<Status(node::Node&, Output&)>;

/// The run.toml of a peer in `dir` ("": the one that it names). A run that has started from a model
/// or an adapter goes on from the copy in its own folder when model.from or tune.from is gone.
Result<train::RunFile> LoadRunOf(const std::string& run_toml, const std::string& dir);

/// kConflict, with both values, when a folder's run has other agreed settings than `asked`.
Status CheckSameRun(const train::RunFile& asked, const node::Node& node, const std::string& dir);

/// Opens, prepares and runs the node until it stops. An error is one line with the next step.
Status RunPeer(PeerProcess process, const std::function<Status(node::Node&)>& prepare,
               const BeforeRun& before_run);

}  // namespace loom::app
