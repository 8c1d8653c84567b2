/* Answers questions of TVM's prover to Z3 that Z3 would not prove, without a search.
 *
 * TVM asks of a solver whether a claim's negation can hold, and uses one thing of the answer: whether
 * that is out of the question (Z3_L_FALSE). An assignment of numbers under which the negation and
 * everything assumed hold shows that it is not. A few dozen are tried here, on formulas that are read
 * through Z3's own interface and never changed. Where one fits, Z3 would have searched until it had
 * found such an assignment, too, or until its budget of steps was spent, which TVM takes for the same.
 * Everything else is asked of Z3.
 *
 * This library is loaded before libz3, for all to see, so that libtvm finds this function of that
 * name first. It needs no header: what it uses of Z3 is looked up in the library that is loaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 48, MAX_NODES = 1 << 15, MAX_EDGES = 4 * MAX_NODES, TABLE = 1 << 16, MAX_ARGS = 64 };
enum { IS_TRUE = 1, IS_FALSE = -1, NUMERAL_AST = 0, APP_AST = 1, BOOL_SORT = 1, INT_SORT = 2 };
enum { /* operations, as Z3 4.15 numbers them */
  TRUE_ = 256, FALSE_, EQ, DISTINCT, ITE, AND, OR, IFF, XOR, NOT, IMPLIES,
  LE = 514, GE, LT, GT, ADD, SUB, UMINUS, MUL, IDIV = 523, MOD = 525, UNINTERPRETED = 45102
};
enum { CONSTANT = -1, VARIABLE = -2, UNKNOWN = -3 };

typedef void *Ref; /* contexts, solvers, formulas */

static struct {
  int (*check)(Ref, Ref, unsigned, const Ref *);
  int (*kind)(Ref, Ref), (*decl_kind)(Ref, Ref), (*sort_kind)(Ref, Ref);
  _Bool (*numeral)(Ref, Ref, int64_t *);
  Ref (*decl)(Ref, Ref), (*arg)(Ref, Ref, unsigned), (*sort)(Ref, Ref), (*assertions)(Ref, Ref), (*at)(Ref, Ref, unsigned);
  unsigned (*arg_count)(Ref, Ref), (*size)(Ref, Ref);
  void (*hold)(Ref, Ref), (*drop)(Ref, Ref);
} z3;

typedef struct {
  int kind, first, count;
  int64_t value;
} Node;

typedef struct { /* the formulas of one question: each node behind its operands */
  Ref keys[TABLE];
  int slots[TABLE];
  unsigned stamps[TABLE], now;
  Node nodes[MAX_NODES];
  int edges[MAX_EDGES], variables[MAX_NODES], roots[MAX_NODES];
  int node_count, edge_count, variable_count, root_count, is_too_large;
  int64_t low[MAX_NODES], high[MAX_NODES], values[MAX_NODES];
  char defined[MAX_NODES];
} Work;

static __thread Work *work;
static int is_on;
static long asked, refuted;

static unsigned find_slot(Ref key) {
  unsigned slot = (unsigned)(((uintptr_t)key >> 4) * 2654435761u) & (TABLE - 1);
  while (work->stamps[slot] == work->now && work->keys[slot] != key) slot = (slot + 1) & (TABLE - 1);
  return slot;
}

static int take_in(Ref context, Ref formula, int depth) {
  unsigned slot = find_slot(formula);
  if (work->stamps[slot] == work->now) return work->slots[slot];
  Node node = {UNKNOWN, 0, 0, 0};
  int kind = z3.kind(context, formula), sort = 0;
  if (kind == NUMERAL_AST) {
    if (z3.numeral(context, formula, &node.value)) node.kind = CONSTANT;
  } else if (kind == APP_AST) {
    int operation = z3.decl_kind(context, z3.decl(context, formula));
    unsigned count = z3.arg_count(context, formula);
    if (operation == UNINTERPRETED && count == 0) {
      sort = z3.sort_kind(context, z3.sort(context, formula));
      if (sort == BOOL_SORT || sort == INT_SORT) node.kind = VARIABLE;
    } else if (operation != UNINTERPRETED && count <= MAX_ARGS && depth < 1000) {
      int operands[MAX_ARGS];
      for (unsigned i = 0; i < count; i++) {
        operands[i] = take_in(context, z3.arg(context, formula, i), depth + 1);
        if (work->is_too_large) return 0;
      }
      if (work->edge_count + (int)count > MAX_EDGES) work->is_too_large = 1;
      if (work->is_too_large) return 0;
      node = (Node){operation, work->edge_count, (int)count, 0};
      memcpy(work->edges + node.first, operands, count * sizeof *operands);
      work->edge_count += (int)count;
    }
  }
  if (work->node_count >= MAX_NODES) {
    work->is_too_large = 1;
    return 0;
  }
  int id = work->node_count++;
  work->nodes[id] = node;
  if (node.kind == VARIABLE) {
    work->variables[work->variable_count++] = id;
    work->low[id] = sort == BOOL_SORT ? 0 : INT64_MIN / 4;
    work->high[id] = sort == BOOL_SORT ? 1 : INT64_MAX / 4;
  }
  slot = find_slot(formula); /* the operands may have taken the one from above */
  work->stamps[slot] = work->now;
  work->keys[slot] = formula;
  work->slots[slot] = id;
  return id;
}

static int read_constant(int id, int64_t *value) {
  const Node *node = &work->nodes[id];
  if (node->kind == UMINUS && work->nodes[work->edges[node->first]].kind == CONSTANT)
    return !__builtin_sub_overflow((int64_t)0, work->nodes[work->edges[node->first]].value, value);
  *value = node->value;
  return node->kind == CONSTANT;
}

/* Narrow a variable by what must hold of it alone, as in v <= 7: a hint where to look, and no more. */
static void narrow(int id) {
  const Node *node = &work->nodes[id];
  const int *operands = work->edges + node->first;
  if (node->kind == AND)
    for (int i = 0; i < node->count; i++) narrow(operands[i]);
  if (node->count != 2) return;
  int operation = node->kind, variable = operands[0], other = operands[1];
  if (work->nodes[other].kind == VARIABLE && work->nodes[variable].kind != VARIABLE) {
    variable = operands[1], other = operands[0];
    operation = operation == LE ? GE : operation == GE ? LE : operation == LT ? GT : operation == GT ? LT : operation;
  }
  int64_t value;
  if (work->nodes[variable].kind != VARIABLE || !read_constant(other, &value)) return;
  int64_t *low = &work->low[variable], *high = &work->high[variable];
  if (value < INT64_MIN / 4 || value > INT64_MAX / 4) return;
  if (operation == LE && value < *high) *high = value;
  if (operation == LT && value - 1 < *high) *high = value - 1;
  if (operation == GE && value > *low) *low = value;
  if (operation == GT && value + 1 > *low) *low = value + 1;
  if (operation == EQ) *low = *high = value;
}

/* What an operation gives; 0 where that is not known: of numbers too large, of a division by zero. */
static int compute(const Node *node, int64_t *result) {
  const int *operands = work->edges + node->first;
#define VALUE(i) work->values[operands[i]]
#define DEFINED(i) work->defined[operands[i]]
  int64_t out = 0;
  int ok = 1;
  switch (node->kind) {
  case TRUE_: out = 1; break;
  case FALSE_: break;
  case ITE:
    ok = DEFINED(0) && DEFINED(VALUE(0) ? 1 : 2);
    out = VALUE(VALUE(0) ? 1 : 2);
    break;
  case AND: case OR: {
    int decides = node->kind == OR;
    out = !decides;
    for (int i = 0; i < node->count; i++) {
      if (!DEFINED(i)) ok = 0;
      else if (!!VALUE(i) == decides) { *result = decides; return 1; }
    }
    break;
  }
  default:
    for (int i = 0; i < node->count; i++) if (!DEFINED(i)) return 0;
    switch (node->kind) {
    case NOT: out = !VALUE(0); break;
    case EQ: case IFF: ok = node->count == 2; out = ok && VALUE(0) == VALUE(1); break;
    case XOR: case DISTINCT: ok = node->count == 2; out = ok && VALUE(0) != VALUE(1); break;
    case IMPLIES: out = !VALUE(0) || VALUE(1); break;
    case LE: out = VALUE(0) <= VALUE(1); break;
    case LT: out = VALUE(0) < VALUE(1); break;
    case GE: out = VALUE(0) >= VALUE(1); break;
    case GT: out = VALUE(0) > VALUE(1); break;
    case ADD:
      for (int i = 0; i < node->count; i++) ok &= !__builtin_add_overflow(out, VALUE(i), &out);
      break;
    case MUL:
      out = 1;
      for (int i = 0; i < node->count; i++) ok &= !__builtin_mul_overflow(out, VALUE(i), &out);
      break;
    case SUB:
      out = VALUE(0);
      for (int i = 1; i < node->count; i++) ok &= !__builtin_sub_overflow(out, VALUE(i), &out);
      break;
    case UMINUS: ok = !__builtin_sub_overflow((int64_t)0, VALUE(0), &out); break;
    case IDIV: case MOD: { /* the remainder is never negative */
      int64_t a = VALUE(0), b = VALUE(1);
      if (b == 0 || b == INT64_MIN || (a == INT64_MIN && b == -1)) return 0;
      int64_t rest = a % b;
      int64_t whole = a / b;
      if (rest < 0) {
        rest += b < 0 ? -b : b;
        whole += b < 0 ? 1 : -1;
      }
      out = node->kind == MOD ? rest : whole;
      break;
    }
    default: return 0;
    }
  }
  *result = out;
  return ok;
}

static uint64_t draw(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static int holds(int sample, uint64_t *state) {
  for (int i = 0; i < work->variable_count; i++) {
    int id = work->variables[i];
    int64_t low = work->low[id], high = work->high[id];
    if (sample % 3 != 2) { /* a wide range is tried near its small values first */
      int64_t width = sample % 3 ? 4096 : 64;
      if (low < -width) low = high >= 0 ? 0 : high - width > low ? high - width : low;
      if (high - low > width) high = low + width;
    }
    work->values[id] = sample == 0 ? low : low + (int64_t)(draw(state) % ((uint64_t)(high - low) + 1));
    work->defined[id] = 1;
  }
  for (int id = 0; id < work->node_count; id++) {
    const Node *node = &work->nodes[id];
    if (node->kind == VARIABLE) continue;
    work->values[id] = node->value;
    work->defined[id] = node->kind == CONSTANT;
    if (node->kind >= 0) work->defined[id] = (char)compute(node, &work->values[id]);
  }
  for (int i = 0; i < work->root_count; i++)
    if (!work->defined[work->roots[i]] || !work->values[work->roots[i]]) return 0;
  return 1;
}

static int can_hold(Ref context, Ref solver, unsigned count, const Ref *assumptions) {
  if (work == NULL && (work = calloc(1, sizeof *work)) == NULL) return 0;
  if (++work->now == 0) return 0; /* after four billion questions: the marks would be taken for new */
  work->node_count = work->edge_count = work->variable_count = work->root_count = work->is_too_large = 0;
  Ref known = z3.assertions(context, solver);
  z3.hold(context, known);
  unsigned size = z3.size(context, known);
  if ((uint64_t)size + count > MAX_NODES) work->is_too_large = 1;
  for (unsigned i = 0; i < size && !work->is_too_large; i++)
    work->roots[work->root_count++] = take_in(context, z3.at(context, known, i), 0);
  for (unsigned i = 0; i < count && !work->is_too_large; i++)
    work->roots[work->root_count++] = take_in(context, assumptions[i], 0);
  z3.drop(context, known);
  if (work->is_too_large) return 0;
  for (int i = 0; i < work->root_count; i++) narrow(work->roots[i]);
  for (int i = 0; i < work->variable_count; i++)
    if (work->low[work->variables[i]] > work->high[work->variables[i]]) return 0;
  uint64_t state = 0x9e3779b97f4a7c15ull;
  for (int sample = 0; sample < SAMPLES; sample++)
    if (holds(sample, &state)) return 1;
  return 0;
}

static int look_up(void *library) {
#define FIND(field, name) (*(void **)&z3.field = dlsym(library, name)) != NULL
  return FIND(check, "Z3_solver_check_assumptions") && FIND(kind, "Z3_get_ast_kind")
      && FIND(numeral, "Z3_get_numeral_int64") && FIND(decl, "Z3_get_app_decl")
      && FIND(decl_kind, "Z3_get_decl_kind") && FIND(arg_count, "Z3_get_app_num_args")
      && FIND(arg, "Z3_get_app_arg") && FIND(sort, "Z3_get_sort") && FIND(sort_kind, "Z3_get_sort_kind")
      && FIND(assertions, "Z3_solver_get_assertions") && FIND(hold, "Z3_ast_vector_inc_ref")
      && FIND(drop, "Z3_ast_vector_dec_ref") && FIND(size, "Z3_ast_vector_size")
      && FIND(at, "Z3_ast_vector_get");
}

/* Find the libz3 of this name that is loaded already, which libtvm uses. 1 if it has all that is needed. */
int tileyard_refuter_open(const char *name) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  return library != NULL && look_up(library);
}

/* Answer from here on, or let every question through to Z3. */
void tileyard_refuter_switch(int on) { is_on = on; }

long tileyard_refuter_asked(void) { return asked; }
long tileyard_refuter_refuted(void) { return refuted; }

int Z3_solver_check_assumptions(Ref context, Ref solver, unsigned count, const Ref *assumptions) {
  if (z3.check == NULL && !tileyard_refuter_open("libz3.so.4.15")) abort();
  __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
  if (is_on && can_hold(context, solver, count, assumptions)) {
    __atomic_fetch_add(&refuted, 1, __ATOMIC_RELAXED);
    return IS_TRUE;
  }
  return z3.check(context, solver, count, assumptions);
}
