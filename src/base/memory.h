// How much memory this process may still take, for errors that come before the kernel's; and giving
// back what it no longer needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace loom {

/// Bytes that can still be had: what the kernel calls available and free swap, or what the control
/// group (v2) of this process has left when that is less. UINT64_MAX where neither is told.
std::uint64_t AvailableMemory();
/// The same from the text of /proc/meminfo; UINT64_MAX when it names no available memory.
std::uint64_t AvailableOf(std::string_view meminfo);

/// kLimit for `what`, naming the bytes it needs, those that there are, and what to do.
Error NoMemory(std::string_view what, std::uint64_t needed, std::uint64_t available);

/// Gives what is free in this process's heap back to the system; milliseconds.
void ReleaseFreeMemory();

/// "512 kB", "1.9 GB".
std::string MemoryText(std::uint64_t bytes);

}  // namespace loom
