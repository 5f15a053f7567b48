// Real values of what peers send and keep, for the seeds of several targets. The same in every
// call.
#pragma once

#include <vector>

#include "collab/messages.h"
#include "collab/record.h"
#include "crypto/keys.h"

namespace loom::fuzz {

/// The key that a number stands for.
crypto::SigningKey SampleKey(std::uint8_t number);
Hash SampleHash(std::uint8_t number);

/// Canonical text of a run's settings that a joiner takes.
std::string SampleSpec();
collab::Genesis SampleGenesis();
/// A step of two members with every field in use.
collab::Body SampleBody();
collab::Record SampleRecord();
/// One of each kind, in the order of the variant.
std::vector<collab::Message> SampleMessages();

}  // namespace loom::fuzz
