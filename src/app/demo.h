// The demo: a small transformer on real text, told in plain words as it happens.
#pragma once

#include <cstdint>
#include <string>

#include "app/output.h"
#include "base/result.h"
#include "train/spec.h"

namespace loom::app {

struct DemoOptions {
  std::string corpus;        ///< text or jsonl file, or a folder of these
  std::string out;           ///< folder for everything the demo makes
  std::uint64_t rounds = 0;  ///< 0 = the demo's own number
  bool one_process = false;  ///< the synchronous run alone, no peers
  bool json = false;
};

/// What summary.json says; the names of its keys are a contract.
struct DemoSummary {
  std::uint64_t peers = 0;
  std::uint64_t killed = 0;
  std::uint64_t rounds = 0;
  std::uint64_t tokens = 0;
  double val_loss = 0;
  double val_loss_one_process = 0;
  double unigram_entropy = 0;
  double bytes_per_token = 0;
  double bytes_per_token_ddp_bf16 = 0;
  bool roots_equal = false;
  std::string export_dir;
  double seconds = 0;

  json::Object ToJson() const;
};

/// Number of peers, and the settings that make four of them learn on two cores within four minutes.
inline constexpr std::uint32_t kDemoPeers = 4;
train::RunFile DemoRun(const std::string& corpus, std::uint64_t rounds);

/// 2 (M-1)/M * 2 * parameters * M / tokens of one global step: all peers' bytes for a bf16 ring.
double DdpBf16BytesPerToken(std::uint64_t parameters, std::uint64_t peers,
                            std::uint64_t tokens_per_step);

Status RunDemo(const DemoOptions& options);

}  // namespace loom::app
