// One entry of an append-only log: how it is written, checked, and, when the disk changed a single
// byte of it, put right. The layout is in append_log.h.
#pragma once

#include <optional>
#include <string>

#include "base/id.h"
#include "store/file_system.h"
#include "wire/bytes_io.h"

namespace loom::store {

inline constexpr std::size_t kLogHeadBytes = 24;
inline constexpr std::size_t kLogCheckBytes = 8;

struct LogHead {
  std::uint32_t length = 0;
  std::uint64_t number = 0;
  std::uint64_t synced = 0;
};

void EncodeLogEntry(wire::Writer& out, const Hash& file_id, std::uint64_t number,
                    std::uint64_t synced, ByteView payload);
/// The head at the front of `bytes`, when its check is right.
std::optional<LogHead> DecodeLogHead(const Hash& file_id, ByteView bytes);
/// The payload of the entry at `offset`, when all of it is right and it has the number `number`.
Result<std::optional<Bytes>> ReadLogEntry(const File& file, const std::string& path,
                                          const Hash& file_id, std::uint64_t offset,
                                          std::uint64_t end, std::uint64_t number);

/// A byte of the file that has to be another one, and the payload of the entry with it.
struct ByteRepair {
  std::uint64_t offset = 0;
  std::byte value{};
  Bytes payload;
};
/// Looks for the one byte whose change makes the entry at `offset` right; its checks, 12 bytes of
/// SHA-256, leave no room for a wrong answer. nullopt: none, or the entry is too long to try.
Result<std::optional<ByteRepair>> FindByteRepair(const File& file, const std::string& path,
                                                 const Hash& file_id, std::uint64_t offset,
                                                 std::uint64_t end, std::uint64_t number);

}  // namespace loom::store
