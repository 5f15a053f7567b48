// One maker per format. Internal to codec.
#pragma once

#include <memory>

#include "codec/codec.h"

namespace loom::codec {

std::unique_ptr<Codec> MakeFp32(Isa isa);
std::unique_ptr<Codec> MakeBf16(Isa isa);
std::unique_ptr<Codec> MakeInt8(Isa isa);

/// kInvalid "NAME encode: value I is V, ..."
Error BadValue(CodecKind kind, std::size_t index, float value);
/// kCorrupt when got is not want bytes.
Status CheckSize(CodecKind kind, std::size_t got, std::size_t want);

}  // namespace loom::codec
