"""What out/bench-cluster.json keeps: python3 tools/bench_cluster/tests.py"""

import json
import os
import tempfile
import unittest

import record


class Kept(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "bench-cluster.json")
        self.results = []

    def measure(self, part, *figures, prints=None):
        with record.recorded(self.path, part, self.results, prints or {"commit": "a"}):
            for figure in figures:
                if isinstance(figure, Exception):
                    raise figure
                self.results.append({"what": part, "figure": figure})

    def parts(self):
        with open(self.path, encoding="utf-8") as file:
            said = json.load(file)
        self.assertEqual((said["format"], said["version"]), ("cairn-bench-cluster", 1))
        return said["parts"]

    def figures(self, part):
        return [result["figure"] for result in self.parts()[part]["results"]]

    def test_parts_that_are_run_one_by_one_are_all_there(self):
        self.measure("flat", 1, 2)
        self.results = []
        self.measure("budget", 3, prints={"commit": "b"})
        self.assertEqual((self.figures("flat"), self.figures("budget")), ([1, 2], [3]))
        prints = {part: entry["fingerprint"]["commit"] for part, entry in self.parts().items()}
        self.assertEqual(prints, {"flat": "a", "budget": "b"})

    def test_parts_of_one_run_hold_their_own_results(self):
        self.measure("flat", 1)
        self.measure("budget", 2)
        self.assertEqual((self.figures("flat"), self.figures("budget")), ([1], [2]))
        self.assertLessEqual(self.parts()["flat"]["at"], self.parts()["budget"]["at"])

    def test_a_part_that_is_measured_again_takes_its_own_place(self):
        self.measure("flat", 1, 2)
        self.measure("budget", 3)
        self.measure("flat", 4)
        self.assertEqual((self.figures("flat"), self.figures("budget")), ([4], [3]))

    def test_one_that_is_cut_short_says_so(self):
        with self.assertRaises(RuntimeError):
            self.measure("flat", 1, RuntimeError("killed"))
        self.assertEqual((self.figures("flat"), self.parts()["flat"]["complete"]), ([1], False))
        self.measure("flat", 2)
        self.assertTrue(self.parts()["flat"]["complete"])

    def test_one_that_measured_nothing_leaves_what_was(self):
        self.measure("flat", 1)
        with self.assertRaises(RuntimeError):
            self.measure("flat", RuntimeError("no fio"))
        self.assertEqual(self.figures("flat"), [1])

    def test_what_is_no_such_file_is_written_over(self):
        for before in ("[]", "{", '{"parts": {"flat": 1}}', '[{"what": "flat"}]'):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(before)
            self.measure("budget", 1)
            self.assertEqual(list(self.parts()), ["budget"])

    def test_a_fingerprint_names_program_machine_and_setting(self):
        prints = record.fingerprint(__file__, seconds=5)
        self.assertEqual(set(prints), {"commit", "cairn", "kernel", "cores", "seconds"})
        self.assertEqual((len(prints["cairn"]), prints["seconds"]), (64, 5))
        self.assertIsNone(record.fingerprint("/nothing/there")["cairn"])


if __name__ == "__main__":
    unittest.main()
