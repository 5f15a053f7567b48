// Whose loss would cut whom off (R35).
#include "collab/isolation.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace loom::collab {
namespace {

PeerId Id(char name) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(name);
  return id;
}

std::string Name(const PeerId& id) { return {static_cast<char>(id.bytes[0])}; }

/// "ab ac": links that both ends report; members are all that are named, and those in `alone`.
LinkReports Links(std::string_view text, std::string_view alone = "") {
  LinkReports reports;
  for (const char name : alone) reports[Id(name)];
  for (std::size_t i = 0; i + 1 < text.size(); i += 3) {
    reports[Id(text[i])].insert(Id(text[i + 1]));
    reports[Id(text[i + 1])].insert(Id(text[i]));
  }
  return reports;
}

/// "ab|c; a-b": the groups, then the pairs.
std::string Text(const Separation& apart) {
  std::string text;
  for (const auto& group : apart.groups) {
    text += text.empty() ? "" : "|";
    for (const PeerId& peer : group) text += Name(peer);
  }
  for (const auto& [a, b] : apart.pairs) {
    text += (text.empty() ? "" : "; ") + Name(a) + "-" + Name(b);
  }
  return text;
}

/// "c: a|b, d: ...": by the loss of one; what is apart already stands in front of "now".
std::string Judge(const LinkReports& reports) {
  const Isolations found = FindIsolations(reports);
  std::string text = Text(found.now);
  if (!text.empty()) text += " now";
  for (const Isolation& isolation : found.by_one) {
    text += (text.empty() ? "" : ", ") + Name(isolation.without) + ": " + Text(isolation.apart);
  }
  return text;
}

TEST(Isolation, AFullMeshDependsOnNobody) {
  EXPECT_EQ(Judge({}), "");
  EXPECT_EQ(Judge(Links("", "a")), "");
  EXPECT_EQ(Judge(Links("ab")), "");
  EXPECT_EQ(Judge(Links("ab ac bc")), "");
  EXPECT_EQ(Judge(Links("ab ac ad bc bd cd")), "");
}

TEST(Isolation, TheOneInTheMiddleIsNamed) {
  EXPECT_EQ(Judge(Links("ac bc")), "c: a|b");
  EXPECT_EQ(Judge(Links("ax bx cx dx")), "x: a|b|c|d");
}

TEST(Isolation, TwoHomesThatMeetAtOneMemberFallIntoTwoGroups) {
  EXPECT_EQ(Judge(Links("ab cd ax bx cx dx")), "x: ab|cd");
}

TEST(Isolation, TwoCarriersAreOneTooManyToBeMissed) {
  EXPECT_EQ(Judge(Links("ax bx ay by xy")), "");
  EXPECT_EQ(Judge(Links("ax bx ay by")), "") << "x and y have two as well";
}

// A chain is a connected graph, and its ends cannot talk: a relay carries one hop.
TEST(Isolation, AChainOfFourIsApartAtItsEndsAlready) {
  EXPECT_EQ(Judge(Links("ab bc cd")), "a-d now, b: a-c, c: b-d");
}

TEST(Isolation, PairsInsideAGroupAreNamedOneByOne) {
  // Without x, a and b reach c and d as before, but not each other.
  EXPECT_EQ(Judge(Links("ax bx cx ac bd cd dx")), "x: a-b");
}

TEST(Isolation, CutFromNamesTheOtherGroupsAndTheOwnPairs) {
  const Isolations homes = FindIsolations(Links("ab cd ax bx cx dx"));
  EXPECT_EQ(CutFrom(homes.by_one[0].apart, Id('a')), (std::set{Id('c'), Id('d')}));
  const Isolations chain = FindIsolations(Links("ab bc cd"));
  EXPECT_EQ(CutFrom(chain.now, Id('a')), std::set{Id('d')});
  EXPECT_TRUE(CutFrom(chain.now, Id('b')).empty());
}

TEST(Isolation, ALinkThatOnlyOneEndReportsIsNone) {
  LinkReports reports = Links("ac bc");
  reports[Id('a')].insert(Id('b'));
  EXPECT_EQ(Judge(reports), "c: a|b");
  reports[Id('b')].insert(Id('a'));
  EXPECT_EQ(Judge(reports), "");
}

TEST(Isolation, WhoHasReportedNothingIsLeftOut) {
  LinkReports reports = Links("ac bc");
  reports[Id('a')].insert(Id('z'));
  reports[Id('b')].insert(Id('z'));
  EXPECT_EQ(Judge(reports), "c: a|b") << "z says nothing, so it does not count as a carrier";
}

TEST(Isolation, WhoHasNoLinkIsApartNow) { EXPECT_EQ(Judge(Links("ab ac bc", "d")), "abc|d now"); }

}  // namespace
}  // namespace loom::collab
