// The owner's key: made by the first `loom host` outside every peer's folder, never used for TLS.
// It signs genesis records and invites.
#pragma once

#include <string>

#include "base/result.h"
#include "crypto/keys.h"

namespace loom::node {

/// $LOOM_OWNER_KEY, or owner.pem in $XDG_CONFIG_HOME/loom or ~/.config/loom.
std::string OwnerKeyPath();

/// Loads the key. kNotFound says where there is one.
Result<crypto::SigningKey> LoadOwnerKey(const std::string& path);
/// Loads the key, or makes it, in a folder that only this user may enter if it makes that too,
/// when there is none. `made` tells which.
Result<crypto::SigningKey> LoadOrMakeKey(const std::string& path, bool* made);

}  // namespace loom::node
