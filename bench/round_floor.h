// What a round cannot do without: `peers` processes over the same TLS on loopback move the encoded
// bytes of a DiLoCo round (every contribution to the owners of its tiles, every sum to everybody),
// add, step, hash the state once and sync the result to a file. No work, no votes, no recovery.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace loom {

/// Seconds of each of `rounds` rounds, as the first process saw them. `dir` gets a file a process.
/// Ends the program with a line when a process fails.
std::vector<double> RoundFloor(const std::string& dir, std::size_t peers, std::size_t elements,
                               std::size_t rounds);

}  // namespace loom
