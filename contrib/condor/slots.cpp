#include "slots.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rtsched {

namespace {

constexpr std::string_view title = "rtsched-slots";
constexpr int version = 1;

/* Return what stands before the next `separator`, and take both off. */
std::string_view cut(std::string_view &text, char separator)
{
	size_t at = text.find(separator);
	std::string_view head = text.substr(0, at);

	text = at == text.npos ? std::string_view() : text.substr(at + 1);
	return head;
}

template <typename Number> bool parse(std::string_view text, Number &number)
{
	auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);

	return error == std::errc() && end == text.data() + text.size();
}

bool read_title(std::string_view line, Table &table)
{
	int number = 0;

	return cut(line, ' ') == title && parse(cut(line, ' '), number) && number == version &&
	       parse(cut(line, ' '), table.written) && parse(line, table.valid) &&
	       table.written >= 0 && table.valid >= 0;
}

/* Read `start:cpus`, or with more amounts: `:memory:gpus`, and `:disk`. */
bool read_step(std::string_view text, Step &step)
{
	size_t named = static_cast<size_t>(std::count(text.begin(), text.end(), ':'));

	if ((named != 1 && named != DISK && named != RESOURCES) || !parse(cut(text, ':'), step.start))
		return false;
	step.amounts.fill(UNSAID);
	for (size_t at = 0; at < named; at++)
		if (!parse(cut(text, ':'), step.amounts[at]) || step.amounts[at] < 0)
			return false;
	return true;
}

bool falls(const Step &before, const Step &next)
{
	bool less = next.start < before.start;

	for (size_t at = 0; at < RESOURCES; at++)
		less = less || next.amounts[at] < before.amounts[at];
	return less;
}

bool read_steps(std::string_view text, std::vector<Step> &kept)
{
	if (text == "-")
		return true;
	do {
		Step next;

		if (!read_step(cut(text, ','), next))
			return false;
		if (!kept.empty() && falls(kept.back(), next))
			return false;
		kept.push_back(next);
	} while (!text.empty());
	return true;
}

bool read_slot(std::string_view line, Table &table)
{
	std::string_view name = cut(line, '\t'), delay = cut(line, '\t');
	Slot slot;

	if (name.empty() || !parse(delay, slot.delay) || !std::isfinite(slot.delay) ||
	    !read_steps(line, slot.kept))
		return false;
	return table.slots.emplace(name, std::move(slot)).second;
}

} // namespace

std::optional<Table> read_table(std::string_view text, std::string &wrong)
{
	Table table;

	if (!text.ends_with('\n')) {
		wrong = "its last line has no end";
		return {};
	}
	if (!read_title(cut(text, '\n'), table)) {
		wrong = "line 1 is not `rtsched-slots 1 WRITTEN VALID`";
		return {};
	}
	for (int number = 2; !text.empty(); number++) {
		if (!read_slot(cut(text, '\n'), table)) {
			wrong = "line " + std::to_string(number) +
				" is malformed, or names a slot again";
			return {};
		}
	}
	return table;
}

} // namespace rtsched
