/* Notes each line of some source files that a Python process executes, as a byte of a file that processes share.
 *
 * tools/record.py compiles it and has every Python process import it. The file, named by LINE_RECORDING, has one byte
 * for each line, twice: first for lines that run while a module is imported, then for those that run in a call. A byte
 * is there as soon as its line has run: nothing is lost when a process is killed, forks or leaves without its handlers.
 * The text "index" beside the file has a line for each source file: its first byte, its number of lines, its path.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { ELSEWHERE, MODULE, BODY, CALLED };

typedef struct {
    enum kind kind;
    size_t first;
    int count;
} place;

static place elsewhere = {ELSEWHERE, 0, 0};
static PyObject *files; /* the place of each source file, by its path */
static unsigned char *bytes;
static size_t half;
static Py_ssize_t extra;
static __thread int importing;

static place *find_place(PyCodeObject *code)
{
    void *known = NULL;
    _PyCode_GetExtra((PyObject *)code, extra, &known);
    if (known)
        return known;
    PyObject *file = PyDict_GetItemWithError(files, code->co_filename);
    place *found = &elsewhere;
    if (file && (found = malloc(sizeof *found))) {
        *found = *(place *)PyLong_AsVoidPtr(file);
        int is_module = PyUnicode_CompareWithASCIIString(code->co_name, "<module>") == 0;
        found->kind = is_module ? MODULE : code->co_flags & CO_OPTIMIZED ? CALLED : BODY;
    }
    _PyCode_SetExtra((PyObject *)code, extra, found);
    return found;
}

/* A module that is run rather than imported calls what it is there for. */
static int is_imported(PyFrameObject *frame)
{
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyObject *name = PyDict_GetItemString(globals, "__name__");
    int is_main = name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "__main__") == 0;
    Py_DECREF(globals);
    return !is_main;
}

static int note(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    if (what != PyTrace_LINE && what != PyTrace_CALL && what != PyTrace_RETURN)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    place *at = find_place(code);
    Py_DECREF(code);
    if (at->kind == ELSEWHERE)
        return 0;
    if (what == PyTrace_LINE) {
        int line = PyFrame_GetLineNumber(frame);
        if (line > 0 && line <= at->count)
            bytes[(at->kind == CALLED && !importing ? half : 0) + at->first + line - 1] = 1;
    } else if (at->kind == MODULE && is_imported(frame)) {
        importing += what == PyTrace_CALL ? 1 : importing > 0 ? -1 : 0;
    }
    return 0;
}

static PyObject *begin_thread(PyObject *self, PyObject *args)
{
    PyEval_SetTrace(note, NULL);
    Py_RETURN_NONE;
}

/* Without site, which imports this, a program would not be recorded: a worker's keeper is started so. */
static int keep_site(const char *event, PyObject *args, void *data)
{
    if (strcmp(event, "subprocess.Popen") != 0 || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) < 2)
        return 0;
    PyObject *words = PyTuple_GET_ITEM(args, 1);
    for (Py_ssize_t n = 1; PyList_Check(words) && n < PyList_GET_SIZE(words); n++) {
        PyObject *word = PyList_GET_ITEM(words, n);
        if (!PyUnicode_Check(word) || PyUnicode_ReadChar(word, 0) != '-')
            break;
        if (PyUnicode_CompareWithASCIIString(word, "-S") == 0)
            return PyList_SetSlice(words, n, n + 1, NULL);
    }
    return 0;
}

static int map_file(const char *path)
{
    struct stat status;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return 0;
    void *mapped = MAP_FAILED;
    if (fstat(file, &status) == 0)
        mapped = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return 0;
    bytes = mapped;
    half = status.st_size / 2;
    return 1;
}

static int read_index(const char *path)
{
    char name[4096];
    const char *end = strrchr(path, '/');
    snprintf(name, sizeof name, "%.*s/index", end ? (int)(end - path) : 1, end ? path : ".");
    FILE *index = fopen(name, "r");
    place read = {ELSEWHERE, 0, 0};
    if (!index || !(files = PyDict_New()))
        return 0;
    while (fscanf(index, "%zu %d %4095[^\n]", &read.first, &read.count, name) == 3) {
        place *kept = malloc(sizeof *kept);
        PyObject *value = kept ? PyLong_FromVoidPtr(kept) : NULL;
        if (!value || PyDict_SetItemString(files, name, value) < 0)
            break;
        *kept = read;
        Py_DECREF(value);
    }
    fclose(index);
    return !PyErr_Occurred();
}

/* Note lines in another file from now on, as do processes that begin later. */
static PyObject *switch_to(PyObject *self, PyObject *args)
{
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    if (!map_file(path))
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"begin_thread", begin_thread, METH_VARARGS, "Note the lines of this thread."},
    {"switch_to", switch_to, METH_VARARGS, "Note lines in this file from now on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tileyard_line_recorder", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_tileyard_line_recorder(void)
{
    PyObject *module = PyModule_Create(&definition);
    const char *path = getenv("LINE_RECORDING");
    if (!module || !path || !map_file(path) || !read_index(path))
        return module;
    extra = _PyEval_RequestCodeExtraIndex(NULL);
    PyObject *begin = PyObject_GetAttrString(module, "begin_thread");
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *done = threading && begin ? PyObject_CallMethod(threading, "settrace", "O", begin) : NULL;
    Py_XDECREF(begin);
    Py_XDECREF(threading);
    if (!done) {
        Py_DECREF(module);
        return NULL;
    }
    Py_DECREF(done);
    PySys_AddAuditHook(keep_site, NULL);
    PyEval_SetTrace(note, NULL);
    return module;
}
