// What this machine does in a second: inner steps, codecs, hashes, its disk. For `--dry-run` and
// `loom bench`; a figure is the best of a few tries on made-up data.
#pragma once

#include <string>

#include "base/result.h"
#include "codec/codec.h"
#include "train/spec.h"

namespace loom::app {

/// Tokens a second of one worker's inner steps, with the threads that `local` or the spec's
/// determinism says. A model or a step that takes too long to try is scaled from a smaller one by
/// its arithmetic; a vocabulary of 0 counts as 256. Thread: sets up the calling one for compute.
Result<double> MeasureTraining(const train::RunSpec& spec, const train::LocalConfig& local);

struct CodecSpeed {
  double encode = 0;  ///< bytes of fp32 a second, one core
  double decode = 0;
};
Result<CodecSpeed> MeasureCodec(codec::CodecKind kind);

/// Bytes of SHA-256 a second, one core.
Result<double> MeasureHash();

inline constexpr std::size_t kDiskMeasureBytes = 64U << 20;
/// Bytes a second into a new file of this folder, synced at its end, as a checkpoint is written: of
/// kDiskMeasureBytes, or as many as three seconds take. The file is removed.
Result<double> MeasureDisk(const std::string& dir);

}  // namespace loom::app
