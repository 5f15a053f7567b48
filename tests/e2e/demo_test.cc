// The demo as newcomers see it: four peers, two kills, equal bits at the end, and the model on
// disk.
#include <filesystem>

#include "tests/e2e/swarm_process.h"

namespace loom::e2e {
namespace {

using Demo = SwarmTest;

TEST_F(Demo, FourPeersTwoKillsOneModel) {
  const Ended ended = Run(
      {"demo", "--corpus", Path("story.txt"), "--out", Path("demo"), "--rounds", "40", "--json"},
      300s);
  ASSERT_EQ(ended.code, 0) << ended.log;
  ASSERT_FALSE(ended.said.empty());
  const json::Value& summary = ended.said.back();
  EXPECT_TRUE(*summary.Find("roots_equal")->AsBool());
  EXPECT_EQ(*summary.Find("peers")->AsUnsigned(), 4U);
  EXPECT_TRUE(std::filesystem::exists(Path("demo/model/model.safetensors")));
}

}  // namespace
}  // namespace loom::e2e
