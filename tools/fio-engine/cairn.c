/*
 * fio's engine for libcairn: fio is the head of the volume that it measures. docs/libcairn.md says how it is built.
 *
 *   ioengine=external:PATH/libcairn-fio.so
 *   uri=cairn:VOLUME?conf=FILE
 *
 * Jobs are threads of one process: all that name the same URI have one volume, each with a queue of its own.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "fio.h"
#include "optgroup.h"

#include "cairn.h"

struct engine_options {
	/* fio asks for a pointer in the first place. */
	void *padding;
	char *uri;
};

struct engine {
	struct cairn_volume *volume;
	struct cairn_queue *queue;
	struct cairn_completion *completions;
	struct io_u **events;
};

static struct fio_option options[] = {
	{
		.name = "uri",
		.lname = "URI of the volume",
		.help = "cairn:VOLUME?conf=FILE",
		.type = FIO_OPT_STR_STORE,
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
		.off1 = offsetof(struct engine_options, uri),
		.def = "",
	},
	{ .name = NULL },
};

/* Called once in the main thread, before the jobs begin: they need the size. */
static int engine_setup(struct thread_data *td)
{
	struct engine_options *its = td->eo;
	struct engine *engine;
	struct fio_file *f;

	/* The client has a thread, which no fork takes along. */
	td->o.use_thread = 1;
	if (td->io_ops_data)
		return 0;
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return 1;
	engine->volume = cairn_open_uri(its->uri);
	if (!engine->volume) {
		log_err("cairn: %s\n", cairn_error());
		free(engine);
		return 1;
	}
	td->io_ops_data = engine;
	if (!td->files_index) {
		/* fio takes a colon for the end of a file's name. */
		add_file(td, "cairn", 0, 0);
		td->o.nr_files = td->o.nr_files ? : 1;
		td->o.open_files++;
	}
	f = td->files[0];
	f->real_file_size = cairn_size(engine->volume);
	return 0;
}

static int engine_init(struct thread_data *td)
{
	struct engine *engine = td->io_ops_data;

	engine->completions = calloc(td->o.iodepth, sizeof(*engine->completions));
	engine->events = calloc(td->o.iodepth, sizeof(*engine->events));
	if (!engine->completions || !engine->events)
		return 1;
	engine->queue = cairn_queue_begin(engine->volume, td->o.iodepth);
	if (!engine->queue) {
		log_err("cairn: %s\n", cairn_error());
		return 1;
	}
	return 0;
}

static void engine_cleanup(struct thread_data *td)
{
	struct engine *engine = td->io_ops_data;

	if (!engine)
		return;
	cairn_queue_end(engine->queue);
	if (cairn_close(engine->volume))
		log_err("cairn: %s\n", cairn_error());
	free(engine->completions);
	free(engine->events);
	free(engine);
	td->io_ops_data = NULL;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine *engine = td->io_ops_data;
	uint64_t length = io_u->xfer_buflen;
	int operation, error;

	fio_ro_check(td, io_u);
	switch (io_u->ddir) {
	case DDIR_READ:
		operation = CAIRN_READ;
		break;
	case DDIR_WRITE:
		operation = CAIRN_WRITE;
		break;
	case DDIR_TRIM:
		operation = CAIRN_DISCARD;
		break;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		operation = CAIRN_FLUSH;
		length = 0;
		break;
	default:
		io_u->error = EINVAL;
		return FIO_Q_COMPLETED;
	}
	error = cairn_submit(engine->queue, operation, operation == CAIRN_FLUSH ? 0 : io_u->offset, length, io_u->xfer_buf,
			     (uintptr_t)io_u);
	if (error == -EAGAIN)
		return FIO_Q_BUSY;
	if (error) {
		io_u->error = -error;
		return FIO_Q_COMPLETED;
	}
	return FIO_Q_QUEUED;
}

static int engine_commit(struct thread_data *td)
{
	struct engine *engine = td->io_ops_data;

	cairn_kick(engine->queue);
	io_u_mark_submit(td, 1);
	return 0;
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct engine *engine = td->io_ops_data;
	int timeout = t ? (int)(t->tv_sec * 1000 + t->tv_nsec / 1000000) : -1;
	int count = cairn_wait(engine->queue, engine->completions, min, max, timeout);
	int i;

	for (i = 0; i < count; i++) {
		struct io_u *io_u = (struct io_u *)(uintptr_t)engine->completions[i].tag;

		io_u->error = -engine->completions[i].result;
		engine->events[i] = io_u;
	}
	return count;
}

static struct io_u *engine_event(struct thread_data *td, int event)
{
	struct engine *engine = td->io_ops_data;

	return engine->events[event];
}

static int engine_open_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int engine_close_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int engine_invalidate(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

struct ioengine_ops ioengine = {
	.name = "libcairn",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_RAWIO,
	.setup = engine_setup,
	.init = engine_init,
	.cleanup = engine_cleanup,
	.queue = engine_queue,
	.commit = engine_commit,
	.getevents = engine_getevents,
	.event = engine_event,
	.open_file = engine_open_file,
	.close_file = engine_close_file,
	.invalidate = engine_invalidate,
	.option_struct_size = sizeof(struct engine_options),
	.options = options,
};
