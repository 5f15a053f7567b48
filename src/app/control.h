// How verbs speak to a running peer: one JSON request, one JSON answer over its control.sock.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "base/time.h"

namespace loom::app {

/// The answer's object. Errors: kNotFound when no peer runs in the folder (with how to start it),
/// kConflict when it is still starting, kTimeout when it is frozen or busy for `limit`, else what
/// the peer said.
Result<json::Value> AskPeer(const std::string& dir, json::Object request,
                            Duration limit = std::chrono::seconds(10));

}  // namespace loom::app
