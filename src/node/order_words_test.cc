#include "node/order_words.h"

#include <gtest/gtest.h>

namespace loom::node {
namespace {

TEST(OrderWords, NameEveryKeyThatChanges) {
  const ByteView before =
      AsBytes("loom-spec 1\noptim.lr = 0.002\nsync.beta = 7\nsync.rounds = 100\n");
  collab::Order order;
  order.settings =
      ToBytes(AsBytes(std::string_view("loom-spec 1\noptim.lr = 0.001\n"
                                       "sync.beta = 7\nsync.rounds = 100\n")));
  EXPECT_EQ(OrderWords(order, before), "the owner changed optim.lr from 0.002 to 0.001");
  EXPECT_EQ(ChangesBy(order, before),
            (std::vector<train::SettingChange>{{"optim.lr", "0.002", "0.001"}}));
  order.revert = 60;
  EXPECT_EQ(OrderWords(order, before),
            "the owner took the run back to the state after round 60 and changed optim.lr from "
            "0.002 to 0.001");
  order.settings.clear();
  EXPECT_TRUE(ChangesBy(order, before).empty());
  EXPECT_EQ(OrderWords(order, before), "the owner took the run back to the state after round 60");
}

}  // namespace
}  // namespace loom::node
