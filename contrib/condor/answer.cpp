#include "answer.h"

#include <cctype>
#include <string_view>

namespace rtsched {

namespace {

constexpr std::string_view mark = "rtsched:";
constexpr size_t longest_admission = 200;

/* Control characters would break the lines of logs and tools. */
std::string plain(std::string_view text)
{
	std::string made(text);

	for (char &letter : made)
		if (iscntrl(static_cast<unsigned char>(letter)))
			letter = ' ';
	return made;
}

/* Keep what stands behind the mark; false: it cannot be an admission. */
bool take_admission(std::string_view text, std::string &admission)
{
	if (!text.starts_with(mark) || text.size() == mark.size() ||
	    text.size() > mark.size() + longest_admission)
		return false;
	for (unsigned char letter : text.substr(mark.size()))
		if (!isgraph(letter) || letter == '"' || letter == '\\')
			return false;
	admission = text.substr(mark.size());
	return true;
}

/* Keep a field; false: a job cannot have that. Tags that are not known are skipped. */
bool take(const struct rtsched_field &field, SubmitReply &reply, int64_t &verdict)
{
	std::string_view text(field.text ? field.text : "", field.text ? field.length : 0);

	switch (field.tag) {
	case RTSCHED_TAG_VERDICT:
		verdict = field.number;
		return field.type == RTSCHED_NUMBER &&
		       (verdict == RTSCHED_ACCEPT || verdict == RTSCHED_REJECT);
	case RTSCHED_TAG_MESSAGE:
		reply.message = plain(text);
		return field.type == RTSCHED_TEXT;
	case RTSCHED_TAG_NTASKS_PER_NODE:
		reply.per_slot = field.number;
		return field.type == RTSCHED_NUMBER && reply.per_slot > 0;
	case RTSCHED_TAG_ADMIN_COMMENT:
		return field.type == RTSCHED_TEXT && take_admission(text, reply.admission);
	default:
		return true;
	}
}

} // namespace

std::optional<SubmitReply> read_answer(const struct rtsched_answer &answer, std::string &wrong)
{
	struct rtsched_cursor cursor = {answer.payload, answer.payload + answer.length};
	struct rtsched_field field;
	int64_t verdict = -1;
	SubmitReply reply;

	wrong = "its answer is invalid";
	while (rtsched_next(&cursor, &field) == RTSCHED_FIELD)
		if (!take(field, reply, verdict))
			return {};
	if (answer.kind != RTSCHED_KIND_ANSWER || verdict < 0) {
		if (!reply.message.empty())
			wrong = reply.message;
		return {};
	}
	reply.rejected = verdict == RTSCHED_REJECT;
	if (reply.rejected) {
		reply.admission.clear();
		reply.per_slot = 0;
		if (reply.message.empty())
			reply.message = "rtsched: refused";
	}
	return reply;
}

} // namespace rtsched
