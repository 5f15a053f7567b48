#include "node/owner_key.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>

namespace loom::node {

std::string OwnerKeyPath() {
  if (const char* path = std::getenv("LOOM_OWNER_KEY"); path != nullptr && *path != '\0')
    return path;
  if (const char* xdg = std::getenv("XDG_CONFIG_HOME"); xdg != nullptr && *xdg != '\0') {
    return std::string(xdg) + "/loom/owner.pem";
  }
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr && *home != '\0' ? home : ".") + "/.config/loom/owner.pem";
}

Result<crypto::SigningKey> LoadOwnerKey(const std::string& path) {
  auto key = crypto::SigningKey::Load(path);
  if (key || key.error().code != Code::kNotFound) return key;
  return MakeError(Code::kNotFound, fmt::format("no owner key: {} is not there", path),
                   "loom host and loom train make one for who begins a run: do this on that "
                   "machine, or set LOOM_OWNER_KEY to a copy of its key");
}

Result<crypto::SigningKey> LoadOrMakeKey(const std::string& path, bool* made) {
  *made = false;
  auto loaded = crypto::SigningKey::Load(path);
  if (loaded || loaded.error().code != Code::kNotFound) return loaded;
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (std::filesystem::create_directories(folder, error))  // what was there is not ours to close
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  const crypto::SigningKey key = crypto::SigningKey::Generate();
  if (const Status saved = key.Save(path); !saved) {
    // Another process of the same user may have made it at the same moment.
    if (saved.error().code == Code::kConflict) return crypto::SigningKey::Load(path);
    return saved.error();
  }
  *made = true;
  return key;
}

}  // namespace loom::node
