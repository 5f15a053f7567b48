// The errors of the socket, told from the folder's side.
#include "app/control.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>

#include "app/peer_folder_source.h"
#include "base/human.h"
#include "net/control_socket.h"

namespace loom::app {
namespace {

Code CodeNamed(std::string_view name) {
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    if (CodeName(static_cast<Code>(code)) == name) return static_cast<Code>(code);
  }
  return Code::kInternal;
}

std::string TextOf(const json::Value& value, std::string_view key) {
  const json::Value* found = value.Find(key);
  const std::string* text = found != nullptr ? found->AsString() : nullptr;
  return text != nullptr ? *text : "";
}

}  // namespace

Result<json::Value> AskPeer(const std::string& dir, json::Object request, Duration limit) {
  if (const char* key = std::getenv("LOOM_OWNER_KEY"); key != nullptr && *key != '\0') {
    std::error_code ignored;
    request.emplace_back("owner_key",
                         json::Value(std::filesystem::absolute(key, ignored).string()));
  }
  auto line = net::ControlRequest(dir + "/control.sock",
                                  json::Dump(json::Value(std::move(request))), limit);
  if (!line) {
    if (line.error().code != Code::kNotFound) return std::move(line).error();
    if (const auto holder = FolderHolder(dir)) {
      return MakeError(
          Code::kConflict,
          fmt::format("the peer in {} (process {}) is starting or ending", dir, *holder),
          "try again in a moment");
    }
    return MakeError(Code::kNotFound, fmt::format("no peer runs in {}", dir),
                     fmt::format("start it with: loom join --dir {}", ShellWord(dir)));
  }
  auto answer = json::Parse(*line);
  if (!answer || answer->AsObject() == nullptr) {
    return MakeError(Code::kInternal, fmt::format("the peer in {} gave no JSON object", dir),
                     "are the peer and this program of one version?");
  }
  const json::Value* ok = answer->Find("ok");
  if (ok != nullptr && ok->AsBool() != nullptr && !*ok->AsBool()) {
    return MakeError(CodeNamed(TextOf(*answer, "code")), TextOf(*answer, "error"),
                     TextOf(*answer, "hint"));
  }
  return *std::move(answer);
}

}  // namespace loom::app
